#include "fio-engine/options.h"

#include <optgroup.h>
#include <stddef.h>

#define OPTION(field) .off1 = offsetof(struct engine_options, field)
#define GROUP .category = FIO_OPT_C_ENGINE, .group = FIO_OPT_G_INVALID

/* Without a .minval: of a number below it fio prints that it is, takes what is behind the minus for
 * the end of a range, and goes on with the default. The engine looks itself. */
struct fio_option engine_option_table[] = {
    {
        .name = "path",
        .lname = "Paths to the server",
        .type = FIO_OPT_STR_STORE,
        OPTION(path),
        .help = "Ways to the server, with commas between: [standby:][rdma:][SOURCE@]HOST:PORT; "
                "rdma: needs thread=1",
        GROUP,
    },
    {
        .name = "session",
        .lname = "Session name",
        .type = FIO_OPT_STR_STORE,
        OPTION(session),
        .help = "The session's name, which the server's rules know; %j in it is the job's number",
        GROUP,
    },
    {
        .name = "volume",
        .lname = "Volume",
        .type = FIO_OPT_STR_STORE,
        OPTION(volume),
        .help = "The export's name at the server",
        GROUP,
    },
    {
        .name = "access",
        .lname = "Access",
        .type = FIO_OPT_STR,
        OPTION(access),
        .def = "auto",
        .help = "How the volume is opened",
        .posval =
            {
                {.ival = "auto", .oval = access_auto, .help = "ro for jobs that only read"},
                {.ival = "ro", .oval = access_ro, .help = "read-only"},
                {.ival = "rw", .oval = access_rw, .help = "as its only writer"},
                {.ival = "migration", .oval = access_migration, .help = "beside another writer"},
            },
        GROUP,
    },
    {
        .name = "settings",
        .lname = "Settings of the session",
        .type = FIO_OPT_STR_STORE,
        OPTION(settings),
        .help = "Settings of librnbd(3), with commas between: hold-time=30s,connections=2",
        GROUP,
    },
    {
        .name = "open_seconds",
        .lname = "Wait for the volume",
        .type = FIO_OPT_INT,
        OPTION(open_seconds),
        .maxval = open_seconds_max,
        .def = "10",
        .help = "How many seconds a start waits for the volume",
        GROUP,
    },
    {
        .name = "batch",
        .lname = "Requests in a batch",
        .type = FIO_OPT_INT,
        OPTION(batch),
        .maxval = batch_max,
        .def = "32",
        .help = "Requests that leave together, unless the job waits for one first",
        GROUP,
    },
    {
        .name = "registered",
        .lname = "Registered buffers",
        .type = FIO_OPT_BOOL,
        OPTION(registered),
        .def = "1",
        .help = "The job's buffers are the session's, so that nothing is copied",
        GROUP,
    },
    {
        .name = "shared",
        .lname = "Shared session",
        .type = FIO_OPT_BOOL,
        OPTION(shared),
        .def = "0",
        .help = "Jobs of the same session name share one session; needs fio's thread=1",
        GROUP,
    },
    {
        .name = NULL,
    },
};
