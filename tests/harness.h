/* Between the runner and the helpers that tests call; tests include test.h only. */
#ifndef SMOE_TESTS_HARNESS_H
#define SMOE_TESTS_HARNESS_H

#include <stdint.h>

double harness_now_s(void);
/* In the process of a test: its folder, its random numbers. */
void harness_begin(const char *dir);
void harness_remove_dir(const char *dir);
/* A whole number from the environment, fallback when unset; ends the program when it is none or
 * out of range. */
int64_t harness_env_int(const char *name, int64_t min, int64_t max, int64_t fallback);
/* Ends the program when a SMOE_TEST_ variable holds something that means nothing. */
void harness_check_environment(void);
/* Prints where the first forbidden allocation came from, if there was one (alloc_guard.c). */
void alloc_guard_report(void);

#endif
