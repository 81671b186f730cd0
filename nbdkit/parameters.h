/* The parameters of the plugin, and the sessions that are made from them.
 *
 * THREAD: nbdkit's first, before it serves; after complete_parameters() they are only read.
 */
#pragma once

#include <librnbd/librnbd.h>
#include <stdbool.h>

struct parameters {
    /* The plugin's own. The strings are nbdkit's, which keeps them. */
    const char *session_name;
    const char *volume_name;
    unsigned wait_ms; /* how long a start waits for the volume */
    bool read_only;
    bool has_rdma_path;
    /* NULL before the first parameter that a session takes. They have the same settings and paths:
     * `session` serves all clients of nbdkit, and `trial` is tried before nbdkit goes to the
     * background. */
    rnbd_session *session;
    rnbd_session *trial;
};
extern struct parameters parameters;

/* .config, .config_complete and .config_help of struct nbdkit_plugin (nbdkit-plugin(3)). */
int take_parameter(const char *key, const char *value);
int complete_parameters(void);
extern const char parameters_help[];
