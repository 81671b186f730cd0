/* What ends the session when nbdkit is to end and requests are stuck: the volume is away, with its
 * server or from it, or requests are late. nbdkit waits for them then.
 *
 * THREADS: any; watch_start() and watch_stop() are called once each.
 */
#pragma once

#include <librnbd/librnbd.h>
#include <stdbool.h>

/* 0, or an errno. session: is closed then, and outlives the watch. */
int watch_start(rnbd_session *session);
void watch_stop(void);
void watch_volume_away(bool away);
/* change: by how many the number of late requests grows. */
void watch_late_requests(int change);
