/* The options of the engine, as fio stores them for each job. */
#pragma once

#include <fio.h>

enum { open_seconds_max = 86400, batch_max = 65535 };

enum access { access_auto, access_ro, access_rw, access_migration };

struct engine_options {
    void *pad; /* fio's */
    char *path;
    char *session;
    char *volume;
    char *settings;
    unsigned int access;
    unsigned int open_seconds;
    unsigned int batch;
    unsigned int registered;
    unsigned int shared;
};

/* The last entry is empty. */
extern struct fio_option engine_option_table[];
