#define NBDKIT_API_VERSION 2
#include "nbdkit/parameters.h"

#include <nbdkit-plugin.h>
#include <string.h>

enum { paths_max = 128, wait_ms_default = 10000 };

struct parameters parameters = {.wait_ms = wait_ms_default};

static const char *paths[paths_max];
static unsigned path_count;

static int config_path(const char *value) {
    if (path_count == paths_max) {
        nbdkit_error("path: more than %d of them", paths_max);
        return -1;
    }
    paths[path_count++] = value;
    parameters.has_rdma_path = parameters.has_rdma_path || strstr(value, "rdma:") != NULL;
    return 0;
}

static int new_session(void) {
    if (parameters.session == NULL &&
        (rnbd_session_new(&parameters.session) < 0 || rnbd_session_new(&parameters.trial) < 0)) {
        nbdkit_error("librnbd: out of memory");
        return -1;
    }
    return 0;
}

static int set(const char *key, const char *value) {
    if (new_session() < 0) return -1;
    if (rnbd_session_set(parameters.session, key, value) == 0)
        return rnbd_session_set(parameters.trial, key, value);
    /* Of a value that is wrong it names the key first. */
    nbdkit_error("%s%s", rnbd_session_error(parameters.session),
                 strncmp(rnbd_session_error(parameters.session), key, strlen(key)) == 0
                     ? ""
                     : ", or of session, path, volume, wait, readonly");
    return -1;
}

static int config_session(const char *value) {
    if (parameters.session_name != NULL) {
        nbdkit_error("session: found %s and %s, expected one", parameters.session_name, value);
        return -1;
    }
    parameters.session_name = value;
    if (new_session() < 0) return -1;
    if (rnbd_session_set(parameters.session, "name", value) == 0)
        return rnbd_session_set(parameters.trial, "name", value);
    const char *words = rnbd_session_error(parameters.session);
    if (strncmp(words, "name: ", 6) == 0) words += 6; /* what librnbd calls it */
    nbdkit_error("session: %s", words);
    return -1;
}

static int config_wait(const char *value) {
    unsigned seconds;
    if (nbdkit_parse_unsigned("wait", value, &seconds) < 0) return -1;
    if (seconds < 1 || seconds > 86400) {
        nbdkit_error("wait: found %u, expected 1 to 86400 seconds", seconds);
        return -1;
    }
    parameters.wait_ms = seconds * 1000;
    return 0;
}

static int config_read_only(const char *value) {
    int chosen = nbdkit_parse_bool(value);
    if (chosen < 0) return -1;
    parameters.read_only = chosen;
    return 0;
}

static int config_volume(const char *value) {
    if (parameters.volume_name != NULL) {
        nbdkit_error("volume: found %s and %s, expected one", parameters.volume_name, value);
        return -1;
    }
    parameters.volume_name = value;
    return 0;
}

int take_parameter(const char *key, const char *value) {
    if (strcmp(key, "path") == 0) return config_path(value);
    if (strcmp(key, "session") == 0) return config_session(value);
    if (strcmp(key, "volume") == 0) return config_volume(value);
    if (strcmp(key, "wait") == 0) return config_wait(value);
    if (strcmp(key, "readonly") == 0) return config_read_only(value);
    if (strcmp(key, "name") == 0) {
        nbdkit_error("name: found an unknown key, expected session= for the session's name");
        return -1;
    }
    if (strcmp(key, "thread") == 0) {
        nbdkit_error("thread: the plugin's sessions always have a thread of their own");
        return -1;
    }
    return set(key, value);
}

int complete_parameters(void) {
    unsigned i;
    if (parameters.session_name == NULL || parameters.volume_name == NULL || path_count == 0) {
        nbdkit_error("session=, volume= and path= are needed; missing:%s%s%s",
                     parameters.session_name == NULL ? " session=" : "",
                     parameters.volume_name == NULL ? " volume=" : "",
                     path_count == 0 ? " path=" : "");
        return -1;
    }
    for (i = 0; i < path_count; i++) {
        if (rnbd_session_add_path(parameters.session, paths[i]) < 0 ||
            rnbd_session_add_path(parameters.trial, paths[i]) < 0) {
            nbdkit_error("%s", rnbd_session_error(parameters.session));
            return -1;
        }
    }
    return 0;
}

const char parameters_help[] =
    "session=NAME   (required) the session's name, which the server's rules know\n"
    "path=ADDRESS   (required) way to the server, several times:\n"
    "               [standby:][rdma:][SOURCE@]HOST:PORT\n"
    "volume=NAME    (required) the export's name at the server\n"
    "wait=SECONDS   how long a start waits for the volume (default 10)\n"
    "readonly=BOOL  open it read-only\n"
    "KEY=VALUE      any other setting of librnbd(3), as hold-time=30s";
