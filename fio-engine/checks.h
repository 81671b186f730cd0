/* What must hold before a job starts: fio is the one that the engine was compiled for, and its
 * options fit each other and the volume.
 *
 * THREAD: any. */
#pragma once

#include <librnbd/librnbd.h>

#include "fio-engine/options.h"

/* These return 0, or 1 after they have called complain() (fio-engine/bond.h). */
int check_job(struct thread_data *td, const struct engine_options *o);
/* The sizes of the job's requests are whole blocks of the volume. */
int check_block_size(struct thread_data *td, const struct rnbd_volume_info *info);
