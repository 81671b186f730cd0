#include "fio-engine/checks.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "fio-engine/bond.h"

static int check_options(struct thread_data *td, const struct engine_options *o) {
    char missing[96];
    if (o->path == NULL || o->session == NULL || o->volume == NULL) {
        snprintf(missing, sizeof missing, "path=, session= and volume= are needed; missing:%s%s%s",
                 o->path == NULL ? " path=" : "", o->session == NULL ? " session=" : "",
                 o->volume == NULL ? " volume=" : "");
        return complain(td, -EINVAL, "options", missing);
    }
    if (o->shared && !td->o.use_thread) {
        return complain(td, -EINVAL, "shared", "jobs are processes: fio's thread=1 is needed");
    }
    /* The size is asked for before the fork, by default: a child may not use the device's context that
     * librdmacm has kept since. */
    if (strstr(o->path, "rdma:") != NULL && !td->o.use_thread) {
        return complain(td, -EINVAL, "path", "RDMA in processes: fio's thread=1 is needed");
    }
    if (o->open_seconds < 1 || o->open_seconds > open_seconds_max) {
        return complain(td, -EINVAL, "open_seconds", "expected 1 to 86400");
    }
    if (o->batch < 1 || o->batch > batch_max) {
        return complain(td, -EINVAL, "batch", "expected 1 to 65535");
    }
    /* fio reads what it takes for the file itself. */
    if (td->o.pre_read) {
        return complain(td, -EINVAL, "pre_read", "a volume is not in a cache of this machine");
    }
    if (td->o.nr_files > 1) {
        return complain(td, -EINVAL, "nrfiles", "a job has one volume");
    }
    return 0;
}

/* Structures of fio that is run and of the fio that we were compiled for: their engines have one
 * version for several layouts. */
static int check_layout(struct thread_data *td) {
    const struct {
        const char *name;
        size_t at;
    } known[] = {{"iodepth", offsetof(struct thread_options, iodepth)},
                 {"size", offsetof(struct thread_options, size)},
                 {"sync", offsetof(struct thread_options, sync_io)},
                 {"thinktime", offsetof(struct thread_options, thinktime)},
                 {"rate_iops", offsetof(struct thread_options, rate_iops)}};
    const struct fio_option *one;
    unsigned found = 0;
    size_t i;
    for (one = fio_options; one->name != NULL; one++) {
        for (i = 0; i < FIO_ARRAY_SIZE(known); i++) {
            if (strcmp(one->name, known[i].name) == 0) found += one->off1 == known[i].at;
        }
    }
    if (found == FIO_ARRAY_SIZE(known)) return 0;
    return complain(td, -ENOEXEC, "engine",
                    "it was compiled for another fio than " RNBD_FIO_VERSION);
}

int check_block_size(struct thread_data *td, const struct rnbd_volume_info *info) {
    unsigned way;
    char text[96];
    for (way = 0; way < DDIR_RWDIR_CNT; way++) {
        const unsigned long long bytes = td->o.min_bs[way];
        if ((td->o.td_ddir & (1u << way)) == 0 || bytes % info->block_bytes == 0) continue;
        snprintf(text, sizeof text, "%llu bytes are not whole blocks of %u", bytes,
                 info->block_bytes);
        return complain(td, -EINVAL, "bs", text);
    }
    return 0;
}

int check_job(struct thread_data *td, const struct engine_options *o) {
    const int failed = check_layout(td);
    return failed != 0 ? failed : check_options(td, o);
}
