/* smoe doctor: what the machine offers, what stands in the way, and what to do about it. */
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/common.h"

typedef struct report {
    struct json_object *list; /* NULL: lines on stdout */
    int n_warn, n_fail;
} report;

static const char *const state_name[] = {"ok", "warn", "fail"};

static void take(void *user, const smoe_check *c) {
    report *r = user;
    r->n_warn += c->state == SMOE_CHECK_WARN;
    r->n_fail += c->state == SMOE_CHECK_FAIL;
    if (r->list) {
        struct json_object *o = json_object_new_object();
        json_object_object_add(o, "check", json_object_new_string(c->name));
        json_object_object_add(o, "state", json_object_new_string(state_name[c->state]));
        json_object_object_add(o, "text", json_object_new_string(c->text));
        if (c->remedy) {
            json_object_object_add(o, "remedy", json_object_new_string(c->remedy));
        }
        json_object_array_add(r->list, o);
        return;
    }
    printf("%-4s  %-15s  %s\n", state_name[c->state], c->name, c->text);
    if (c->remedy) {
        printf("%23s-> %s\n", "", c->remedy);
    }
}

static int run(const command *self, int argc, char **argv) {
    bool json = false;
    const char *path = NULL;
    report r = {.list = NULL};
    const option own[] = {
        {OPTION_FLAG, 0, "json", NULL, &json, 0, 0, "print one JSON object", NULL}, {0}};
    const option *const tables[] = {own, NULL};
    int rc = options_parse(self, tables, argc, argv, &path);
    if (rc) {
        return rc < 0;
    }
    r.list = json ? json_object_new_array() : NULL;
    smoe_doctor(path, take, &r);
    if (json) {
        struct json_object *o = json_object_new_object();
        json_object_object_add(o, "warnings", json_object_new_int(r.n_warn));
        json_object_object_add(o, "failures", json_object_new_int(r.n_fail));
        json_object_object_add(o, "checks", r.list);
        print_json(o);
    } else if (!path) {
        puts("Give a MODEL to look at its drive and file system too.");
    }
    return r.n_fail > 0;
}

const command command_doctor = {
    .name = "doctor",
    .arguments = "[MODEL]",
    .summary = "check the machine: drive, limits, processor; say what to do",
    .details = "  Each line is ok, warn (works, but less well than it could) or fail (cannot run "
               "here), with a\n  remedy. The exit status is 1 only with a fail.",
    .n_optional = 1,
    .run = run};
