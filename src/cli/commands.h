/* The commands, one file each. */
#ifndef SMOE_CLI_COMMANDS_H
#define SMOE_CLI_COMMANDS_H

#include "cli/options.h"

extern const command command_run;
extern const command command_chat;
extern const command command_sculpt;
extern const command command_verify;
extern const command command_inspect;
extern const command command_tokenize;
extern const command command_logits;
extern const command command_eval;
extern const command command_render;
extern const command command_synth;
extern const command command_bench;
extern const command command_plan;
extern const command command_doctor;
extern const command command_trace;
extern const command command_trace_record; /* run with a trace, for command_trace */

#endif
