#include "fio-engine/bond.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void happened(void *context, const struct rnbd_event *event) {
    struct bond *bond = context;
    if (event->kind == RNBD_EVENT_OPEN) __atomic_store_n(&bond->away, 0, __ATOMIC_RELAXED);
    if (event->kind == RNBD_EVENT_NOT_OPEN) __atomic_store_n(&bond->away, 1, __ATOMIC_RELAXED);
}

/* A job may be left waiting for so many turns; not where few requests are under way: there it should
 * go on while the loop does. */
enum { turns_max = 16, depth_min = 64 };

/* A job that is woken by each of its answers costs more than they do, where many share the
 * processors. */
static int wake(void *context, int rests) {
    struct bond *bond = context;
    const bool few = __atomic_load_n(&bond->depth, __ATOMIC_RELAXED) < depth_min;
    struct waiter **link = &bond->answered;
    int somebody_waits;
    pthread_mutex_lock(&bond->lock);
    while (*link != NULL) {
        struct waiter *waiter = *link;
        const bool waits = !rests && !few && waiter->answers < waiter->depth;
        if (waits && ++waiter->turns < turns_max) {
            link = &waiter->next;
            continue;
        }
        *link = waiter->next;
        waiter->listed = false;
        pthread_cond_signal(&waiter->answered);
    }
    somebody_waits = bond->answered != NULL;
    pthread_mutex_unlock(&bond->lock);
    return somebody_waits;
}

void wake_later(struct bond *bond, struct waiter *waiter) {
    if (waiter->listed) { /* by this thread, which alone takes it off while answers come */
        waiter->answers++;
        return;
    }
    waiter->answers = 1;
    waiter->turns = 0;
    pthread_mutex_lock(&bond->lock);
    if (!waiter->listed) {
        waiter->listed = true;
        waiter->next = bond->answered;
        bond->answered = waiter;
    }
    pthread_mutex_unlock(&bond->lock);
}

void forget_waiter(struct bond *bond, struct waiter *waiter) {
    struct waiter **link;
    pthread_mutex_lock(&bond->lock);
    for (link = &bond->answered; *link != NULL; link = &(*link)->next) {
        if (*link != waiter) continue;
        *link = waiter->next;
        break;
    }
    waiter->listed = false;
    pthread_mutex_unlock(&bond->lock);
}

int complain(struct thread_data *td, int error, const char *what, const char *text) {
    log_err("fio: rnbd: %s: %s\n", what, text);
    td_verror(td, -error, "rnbd");
    return 1;
}

/* Calls each("part", context) for the parts of "part,part"; stops at the first that fails. */
static int for_parts(const char *list, int (*each)(char *part, void *context), void *context) {
    char *copy = strdup(list);
    char *rest = copy;
    char *part;
    int error = copy == NULL ? -ENOMEM : 0;
    while (error == 0 && (part = strsep(&rest, ",")) != NULL) error = each(part, context);
    free(copy);
    return error;
}

/* Those that options of the engine say. */
static int refuse_own(char *part, void *context) {
    part[strcspn(part, "=")] = '\0';
    if (strcmp(part, "thread") == 0) {
        return complain(context, -EINVAL, "settings: thread", "shared= says it");
    }
    if (strcmp(part, "name") == 0) {
        return complain(context, -EINVAL, "settings: name", "session= says it");
    }
    return 0;
}

static int add_path(char *part, void *context) { return rnbd_session_add_path(context, part); }

static int apply_setting(char *part, void *context) {
    char *value = strchr(part, '=');
    /* librnbd says what is wrong with a key that is none. */
    if (value == NULL) return rnbd_session_set(context, part, "");
    *value++ = '\0';
    return rnbd_session_set(context, part, value);
}

/* fio's %j, in memory of the caller's. */
static char *session_name(const struct thread_data *td, const char *pattern) {
    const char *mark = strstr(pattern, "%j");
    char *name = NULL;
    if (mark == NULL) return strdup(pattern);
    if (asprintf(&name, "%.*s%u%s", (int)(mark - pattern), pattern, td->thread_number, mark + 2) <
        0) {
        return NULL;
    }
    return name;
}

static int make_session(struct thread_data *td, const struct engine_options *o, struct bond *bond,
                        bool threaded) {
    char *name;
    int error;
    if (o->settings != NULL && for_parts(o->settings, refuse_own, td) > 0) return 1;
    name = session_name(td, o->session);
    if (name == NULL || rnbd_session_new(&bond->session) < 0) {
        free(name);
        return complain(td, -ENOMEM, "session", "out of memory");
    }
    error = rnbd_session_set(bond->session, "name", name);
    free(name);
    if (error == 0) error = for_parts(o->path, add_path, bond->session);
    if (error == 0 && o->settings != NULL) {
        error = for_parts(o->settings, apply_setting, bond->session);
    }
    if (error == 0) error = rnbd_session_set(bond->session, "thread", threaded ? "on" : "off");
    if (error == 0) error = rnbd_session_on_event(bond->session, happened, bond);
    if (error == 0 && threaded) error = rnbd_session_on_turn(bond->session, wake, bond);
    if (error == 0) error = rnbd_session_start(bond->session);
    if (error == 0) return 0;
    complain(td, error, "session", rnbd_session_error(bond->session));
    /* Of those that fio has; another program may be the one that has it: it is, where it was had
     * before the jobs that share it began. */
    if (error == -EADDRINUSE && thread_number > 1 && strstr(o->session, "%j") == NULL &&
        (threaded || !o->shared)) {
        log_err(
            "fio: rnbd: jobs need a name each (session=%s-%%j), or all of them thread=1 and "
            "shared=1\n",
            o->session);
    }
    return 1;
}

void part_with(struct bond *bond) {
    if (bond->session != NULL) rnbd_session_free(bond->session);
    bond->session = NULL;
    bond->volume = NULL;
}

/* 0, or a negative errno; -EINTR: fio was told to end. */
static int wait_until_open(const struct thread_data *td, rnbd_volume *volume, unsigned seconds) {
    uint64_t left_ms = (uint64_t)seconds * 1000;
    for (;;) {
        const int slice_ms = left_ms < away_slice_ms ? (int)left_ms : away_slice_ms;
        const int error = rnbd_volume_wait(volume, slice_ms);
        left_ms -= (uint64_t)slice_ms;
        if (error != -ETIMEDOUT || left_ms == 0) return error;
        if (td->terminate) return -EINTR;
    }
}

int make_bond(struct thread_data *td, const struct engine_options *o, struct bond *bond,
              unsigned flags, bool threaded) {
    int error;
    int failed = make_session(td, o, bond, threaded);
    if (failed == 0) {
        error = rnbd_volume_open(bond->session, o->volume, flags, &bond->volume);
        if (error < 0) failed = complain(td, error, o->volume, rnbd_session_error(bond->session));
    }
    if (failed == 0) {
        error = wait_until_open(td, bond->volume, o->open_seconds);
        if (error < 0) failed = complain(td, error, o->volume, rnbd_volume_error(bond->volume));
    }
    if (failed != 0) part_with(bond);
    return failed;
}

bool job_writes(const struct thread_data *td) { return td_write(td) || td_trim(td); }

unsigned open_flags(const struct thread_data *td, const struct engine_options *o) {
    if (o->access == access_migration) return RNBD_MIGRATION;
    if (o->access == access_ro) return RNBD_READ_ONLY;
    return o->access == access_rw || job_writes(td) ? 0 : RNBD_READ_ONLY;
}

/* --- Those that jobs share. */

static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static struct bond *shared_bonds;

/* Whose key begins so. */
static struct bond *find_shared(const char *key, size_t bytes) {
    struct bond *bond;
    for (bond = shared_bonds; bond != NULL; bond = bond->next) {
        if (strncmp(bond->key, key, bytes) == 0) return bond;
    }
    return NULL;
}

/* ASSUMES: shared_lock is held. key: NAME/VOLUME; a name of a session has no slash. */
static bool other_volume_has_session(const char *key) {
    return find_shared(key, strcspn(key, "/") + 1) != NULL;
}

/* ASSUMES: shared_lock is held. */
static struct bond *new_shared(struct thread_data *td, const struct engine_options *o, char *key) {
    const unsigned flags = open_flags(td, o);
    struct bond *bond = calloc(1, sizeof *bond);
    if (bond == NULL) {
        complain(td, -ENOMEM, "session", "out of memory");
        return NULL;
    }
    pthread_mutex_init(&bond->lock, NULL);
    if (make_bond(td, o, bond, flags, true) != 0) {
        pthread_mutex_destroy(&bond->lock);
        free(bond);
        return NULL;
    }
    bond->writes = flags != RNBD_READ_ONLY;
    bond->key = key;
    bond->next = shared_bonds;
    shared_bonds = bond;
    return bond;
}

struct bond *take_shared(struct thread_data *td, const struct engine_options *o) {
    struct bond *bond;
    char *key = NULL;
    char *name = session_name(td, o->session);
    if (name == NULL || asprintf(&key, "%s/%s", name, o->volume) < 0) key = NULL;
    free(name);
    if (key == NULL) {
        complain(td, -ENOMEM, "session", "out of memory");
        return NULL;
    }
    pthread_mutex_lock(&shared_lock);
    bond = find_shared(key, strlen(key) + 1);
    if (bond == NULL && other_volume_has_session(key)) {
        complain(td, -EADDRINUSE, o->volume,
                 "jobs on another volume have this session: set another session=");
    } else if (bond == NULL) {
        bond = new_shared(td, o, key);
        if (bond != NULL) key = NULL;
    } else if (job_writes(td) && !bond->writes) {
        complain(td, -EROFS, o->volume, "a job that only reads opened it first: set access=rw");
        bond = NULL;
    }
    if (bond != NULL) {
        bond->users++;
        __atomic_add_fetch(&bond->depth, td->o.iodepth, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&shared_lock);
    free(key);
    return bond;
}

/* ASSUMES: shared_lock is held. */
static void close_if_all_leave(struct bond *bond) {
    if (bond->leaving == bond->users) rnbd_session_close(bond->session, NULL, NULL);
}

void leave_shared(struct bond *bond) {
    pthread_mutex_lock(&shared_lock);
    bond->leaving++;
    close_if_all_leave(bond);
    pthread_mutex_unlock(&shared_lock);
}

void leave_shared_no_more(struct bond *bond) {
    pthread_mutex_lock(&shared_lock);
    bond->leaving--;
    pthread_mutex_unlock(&shared_lock);
}

void put_shared(struct bond *bond, unsigned depth) {
    struct bond **link;
    pthread_mutex_lock(&shared_lock);
    __atomic_sub_fetch(&bond->depth, depth, __ATOMIC_RELAXED);
    if (--bond->users == 0) {
        for (link = &shared_bonds; *link != bond; link = &(*link)->next) continue;
        *link = bond->next;
        part_with(bond);
        pthread_mutex_destroy(&bond->lock);
        free(bond->key);
        free(bond);
    } else {
        close_if_all_leave(bond);
    }
    pthread_mutex_unlock(&shared_lock);
}
