/* The program: finds the command and runs it. Each command is a file of its own. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"

static const command *const commands[] = {
    &command_run,      &command_chat,   &command_sculpt, &command_verify, &command_inspect,
    &command_tokenize, &command_logits, &command_eval,   &command_render, &command_synth,
    &command_bench,    &command_plan,   &command_doctor, &command_trace};
enum { N_COMMAND = sizeof commands / sizeof *commands };

static void usage(FILE *to) {
    fputs("smoe runs Mixture-of-Experts language models that are larger than memory.\n\n"
          "Usage: smoe COMMAND [arguments]\n\n",
          to);
    for (int i = 0; i < N_COMMAND; i++) {
        fprintf(to, "  %-9s %s\n", commands[i]->name, commands[i]->summary);
    }
    fputs("\nMODEL is a vault (NAME.smoe), a checkpoint folder (config.json, *.safetensors) or a\n"
          "GGUF file.\n"
          "smoe COMMAND --help lists a command's options; smoe --version prints the version.\n",
          to);
}

static const command *find_command(const char *name) {
    for (int i = 0; i < N_COMMAND; i++) {
        if (strcmp(commands[i]->name, name) == 0) {
            return commands[i];
        }
    }
    return NULL;
}

/* A program started with closed standard streams would get their numbers for the files it opens,
 * and read or write a model as its input or output. */
static bool open_standard_streams(void) {
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= 2);
    if (fd > 2) {
        close(fd);
    }
    return fd > 2;
}

static int dispatch(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        puts("smoe " SMOE_VERSION);
        return 0;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        const command *c = argc > 2 ? find_command(argv[2]) : NULL;
        char *help[] = {(char[]){"--help"}};
        if (c) {
            return c->run(c, 1, help);
        }
        usage(stdout);
        return 0;
    }
    const command *c = find_command(name);
    if (!c) {
        if (*name) {
            fprintf(stderr, "smoe: unknown command \"%s\"\n\n", name);
        }
        usage(stderr);
        return 1;
    }
    return c->run(c, argc - 2, argv + 2);
}

int main(int argc, char **argv) {
    if (!open_standard_streams()) {
        return 1;
    }
    int status = dispatch(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("smoe: cannot write standard output\n", stderr);
        return 1;
    }
    return status;
}
