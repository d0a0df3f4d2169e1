/* What the back ends share: opening the files that they read. */
#ifndef SMOE_STREAMER_IO_FILES_H
#define SMOE_STREAMER_IO_FILES_H

#include "streamer/io.h"

/* Opens every path of config. *fd ([n_file]) is the caller's (io_files_close), NULL after failure.
 * With direct, SMOE_ERR_UNSUPPORTED when a file takes no O_DIRECT or no read through it aligned to
 * IO_ALIGN_BYTES. */
int io_files_open(int **fd, const io_config *config, smoe_error *err);
void io_files_close(int *fd, int32_t n_file);

#endif
