/* Failover of one session, for the model checker spin. tests/model/run.py verifies it.
 *
 * One client, PATHS paths, one server, one storage register. docs/reference/wire-failover.md has
 * the rules that are modelled. What the world may do at any moment:
 *
 *   - deliver a message late, also long after the client has given its path up; messages of
 *     different permits overtake each other
 *   - cut a path: for the client only, for the server only, or for both
 *   - let an operation in the storage take effect late, and end later still, or fail
 *   - let the client give a request up while it has no path: reported as failed, result unknown
 *   - let the server forget a session that has no path and no operation left
 *
 * The value that a write writes is its own sequence, so every value names its write. What must
 * hold is in assertions: see lands(), start(), answered(), finished().
 *
 * Rules can be left out, to see that they are needed. Each must make the verification fail:
 *   NO_ADMISSION       every attempt that arrives runs
 *   RETRY_NOT_WAITING  a retry runs while the first attempt is still in the storage
 *   RERUN_DONE         a retry of a write that has ended runs again instead of being answered
 *   NO_FENCE           a permit whose request was given up is used again without a fence
 *   SHARED_CHUNKS      the paths of a session share the chunk of a permit, as in the kernel
 *   FORGET_EARLY       a session is forgotten while an operation of it still runs
 *   OLDER_RESULT       the end of an older request is recorded as the result of the newest
 *   OTHERS_GO_ON       other requests start while one that was given up is not settled
 * BLACK_BOX leaves only what a user could see: what reads return, and who was answered how often.
 *
 * FENCED is the session without the extension: every attempt runs, and a request is sent again
 * only on the path that had it, once that was accepted anew; this settles what was given up, too.
 */

#ifndef PATHS
#define PATHS 2
#endif
#ifndef PERMITS
#define PERMITS 2
#endif
#ifndef WRITES
#define WRITES 3
#endif
#ifndef READS
#define READS 1
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 1      /* each costs a fence */
#endif
#ifndef LOSSES
#define LOSSES 3        /* of all paths together */
#endif
#ifndef PATH_LOSSES
#define PATH_LOSSES 2   /* of each path */
#endif
#ifndef ERRORS
#define ERRORS 1        /* of the storage */
#endif

#ifdef FENCED
#define NO_ADMISSION
#endif

/* What users cannot see. */
#ifdef BLACK_BOX
#define inside_assert(what) skip
#else
#define inside_assert(what) assert(what)
#endif

#define SLOTS (PATHS * PERMITS)
#define SLOT(path, permit) ((path) * PERMITS + (permit))
#define AT(path) SLOT(path, k)
#define BIT(s) (1 << (s))

/* Results. A read's value is its write's sequence, or 0 for the content at the start. */
#define OK 0
#define STALE 100
#define FAILED 101
#define NONE 102

/* The client. */
byte next = 1;              /* sequence of the next request or fence */
byte request[PERMITS];      /* sequence of the permit's request; 0: free */
byte sent_on[PERMITS];      /* path + 1; 0: held */
bool quarantined[PERMITS];  /* its request was given up, no fence sent yet */
#ifdef FENCED
byte had_it[PERMITS];       /* path + 1 that was lost with it */
#endif
bool up[PATHS];             /* as the client sees it */
short reads, fences;        /* sets of sequences: which kind; all others are writes */
byte writes_left = WRITES, reads_left = READS, give_ups_left = GIVE_UPS;

/* On the way. A path has at most one request and one answer of a permit at a time. */
byte to_server[SLOTS];
byte answer[SLOTS];
byte answer_result[SLOTS];

/* The server. */
bool open[PATHS];           /* as the server sees it; messages of a closed path are gone */
byte newest[PERMITS];       /* admission: the newest sequence ... */
byte result[PERMITS];       /* ... and how it ended; NONE: not run yet, or running */
byte running[SLOTS];        /* sequence in the storage, of this path and permit */
bool effect[SLOTS];         /* that operation has taken effect already */
byte got[SLOTS];            /* what it has read */
byte waiting[SLOTS];        /* admitted when the running one has ended */
#ifdef SHARED_CHUNKS
byte chunk[PERMITS];        /* whose data is in it; a path's own chunk: always its request's */
#endif
byte errors_left = ERRORS;

byte storage;               /* the register: sequence of the write that was last to land */

byte losses_left = LOSSES;
byte path_losses_left[PATHS];

/* Ghosts: only assertions read these. Sets of sequences. */
short answered_set;         /* the client was given the storage's result */
short failed_set;           /* given up: reported as failed, result unknown */
short sealed;               /* of those: something was started after the report */
short landed;               /* in this life of the server's session */
short landed_ever;
short possible = BIT(0);    /* what a read that starts now may return */
short before[PERMITS];      /* writes that had ended when this permit's write started */
short seen[PERMITS];        /* what this permit's read may return */

/* Scratch inside of a step; k: the permit that the step is about. Breadth first search (STORY: the
 * shortest way to a violation) does without hidden variables. */
#ifdef STORY
byte k, q, w, how;
byte busy;
#else
hidden byte k, q, w, how;
hidden byte busy;
#endif

/* How often each rare case was taken, over the whole search. Not part of the state. */
c_decl {
    enum { STALE_REFUSED, RETRY_WAITED, RECORDED_ANSWER, READ_RAN_AGAIN, NEWER_WAITED, FENCE_WAITED,
           WAITER_DROPPED, SESSION_FORGOTTEN, GIVEN_UP, LATE_EFFECT, RARE_CASES };
    static const char *rare_name[RARE_CASES] = {
        "a stale attempt was refused", "a retry waited", "a retry got the recorded result",
        "a read ran again", "a newer request waited for an older one", "a fence waited",
        "a waiting request was dropped with its path", "the session was forgotten",
        "a request was given up", "a write landed after its path was lost" };
    static unsigned long rare_count[RARE_CASES], rare_once;
    static void rare_print(void) {
        for (int i = 0; i < RARE_CASES; ++i) printf("RARE %lu %s\n", rare_count[i], rare_name[i]);
    }
}
#define RARE(name) c_code { ++rare_count[name]; }

#define IS_READ(s) (reads & BIT(s))
#define IS_FENCE(s) (fences & BIT(s))
#define IS_WRITE(s) (!((reads | fences) & BIT(s)))

/* ---------------------------------------------------------------- server */

inline reply(path, s, how) {
    if
    :: open[path] && up[path] ->
        assert(answer[AT(path)] == 0);
        answer[AT(path)] = s;
        answer_result[AT(path)] = how
    :: else  /* nobody listens */
    fi
}

/* The transport answers a fence itself; anything else goes to the storage. */
inline begin(path, s) {
    if
    :: IS_FENCE(s) ->
        result[k] = OK;
        reply(path, s, OK)
    :: else ->
        assert(running[AT(path)] == 0);
        running[AT(path)] = s;
        effect[AT(path)] = false;
        result[k] = NONE
    fi
}

inline someone_runs() {
    busy = false;
    for (q : 0 .. PATHS - 1) {
        if
        :: running[AT(q)] != 0 -> busy = true
        :: else
        fi
    }
}

inline wait_for_it(path, s) {
    assert(running[AT(path)] == 0);  /* else the client broke the protocol */
    assert(waiting[AT(path)] == 0);
    waiting[AT(path)] = s
}

inline arrives(path) {
    w = to_server[AT(path)];
    to_server[AT(path)] = 0;
    printf("EVENT server: request %d of permit %d arrives on path %d\n", w, k, path);
#ifdef SHARED_CHUNKS
    chunk[k] = w;
#endif
#ifdef NO_ADMISSION
    begin(path, w);
#else
    someone_runs();
    if
    :: w < newest[k] ->
        RARE(STALE_REFUSED);
        printf("EVENT server: it is stale, refused\n");
        reply(path, w, STALE)
    :: w > newest[k] ->
        newest[k] = w;
        result[k] = NONE;
        if
        :: busy ->
            RARE(NEWER_WAITED);
            if
            :: IS_FENCE(w) -> RARE(FENCE_WAITED)
            :: else
            fi;
            wait_for_it(path, w)
        :: else -> begin(path, w)
        fi
    :: else ->  /* the newest once more */
        if
        :: busy ->
#ifdef RETRY_NOT_WAITING
            begin(path, w)
#else
            RARE(RETRY_WAITED);
            wait_for_it(path, w)
#endif
#ifndef RERUN_DONE
        :: !busy && result[k] != NONE && !IS_READ(w) ->
            RARE(RECORDED_ANSWER);
            printf("EVENT server: answered with the recorded result\n");
            reply(path, w, result[k])
#endif
        :: else ->
            if
            :: result[k] != NONE -> RARE(READ_RAN_AGAIN)
            :: else
            fi;
            begin(path, w)
        fi
    fi;
#endif
    w = 0
}

/* The operation of this path and permit takes effect now. */
inline lands(path) {
    w = running[AT(path)];
    effect[AT(path)] = true;
    if
    :: IS_READ(w) ->
        got[AT(path)] = storage
    :: else ->
        printf("EVENT storage: write %d (permit %d, path %d) takes effect\n", w, k, path);
        if
        :: !open[path] -> RARE(LATE_EFFECT)
        :: else
        fi;
#ifdef SHARED_CHUNKS
        inside_assert(chunk[k] == w);          /* and not another request's data */
#endif
        inside_assert(!(answered_set & BIT(w)));   /* a ghost: its result was told already */
        inside_assert(!(sealed & BIT(w)));     /* reported as failed, and something started since */
#ifndef FENCED
        inside_assert(!(landed & BIT(w)));     /* twice in one life of the session */
#endif
#ifdef SHARED_CHUNKS
        storage = chunk[k];
#else
        storage = w;
#endif
        landed = landed | BIT(w);
        landed_ever = landed_ever | BIT(w)
    fi;
    w = 0
}

/* Those that waited for this permit: answered, run, or still waiting. */
inline resume_waiting() {
    for (q : 0 .. PATHS - 1) {
        w = waiting[AT(q)];
        if
        :: w == 0
        :: w != 0 && w < newest[k] ->
            RARE(STALE_REFUSED);
            waiting[AT(q)] = 0;
            reply(q, w, STALE)
#ifndef RERUN_DONE
        :: w != 0 && w == newest[k] && result[k] != NONE && !IS_READ(w) ->
            RARE(RECORDED_ANSWER);
            printf("EVENT server: retry %d, which waited, gets the recorded result\n", w);
            waiting[AT(q)] = 0;
            reply(q, w, result[k])
#endif
        :: else ->
            if
            :: !busy ->
                printf("EVENT server: request %d, which waited, runs on path %d\n", w, q);
                waiting[AT(q)] = 0;
                if
                :: !IS_FENCE(w) -> busy = true
                :: else
                fi;
                begin(q, w)
            :: else
            fi
        fi
    }
}

/* In w: its result. */
inline ends(path) {
    how = w;
    w = running[AT(path)];
    printf("EVENT server: operation %d (permit %d, path %d) ends, %d\n", w, k, path, how);
    running[AT(path)] = 0;
    reply(path, w, how);
    effect[AT(path)] = false;
    got[AT(path)] = 0;
#ifndef NO_ADMISSION
#ifndef OLDER_RESULT
    if
    :: w == newest[k] -> result[k] = (how == FAILED -> FAILED : OK)
    :: else
    fi;
#else
    result[k] = (how == FAILED -> FAILED : OK);
#endif
    someone_runs();
    resume_waiting();
#endif
    w = 0
}

/* ---------------------------------------------------------------- client */

inline send(path, s) {
    sent_on[k] = path + 1;
    printf("EVENT client: sends %d of permit %d on path %d\n", s, k, path);
    if
    :: open[path] ->
        assert(to_server[AT(path)] == 0);
        to_server[AT(path)] = s
    :: else
    fi
}

inline start(path) {
    for (q : 0 .. PATHS - 1) {
        /* No permit is used again while an old write of it can still run. */
        inside_assert(running[AT(q)] == 0 || IS_READ(running[AT(q)]))
    }
    sealed = sealed | failed_set;
    request[k] = next;
    send(path, next);
    next++
}

inline start_write(path) {
    writes_left--;
    before[k] = answered_set | failed_set | BIT(0);
    possible = possible | BIT(next);
    for (q : 0 .. PERMITS - 1) {
        if
        :: request[q] && IS_READ(request[q]) -> seen[q] = seen[q] | BIT(next)
        :: else
        fi
    }
    start(path)
}

inline start_read(path) {
    reads_left--;
    reads = reads | BIT(next);
    seen[k] = possible;
    start(path)
}

inline answered(path) {
    w = answer[AT(path)];
    printf("EVENT client: answer to %d of permit %d on path %d: %d\n", w, k, path,
           answer_result[AT(path)]);
    assert(request[k] == w && sent_on[k] == path + 1);
    assert(answer_result[AT(path)] != STALE);  /* who still asks is never stale */
    assert(!(answered_set & BIT(w)));
    answered_set = answered_set | BIT(w);
    if
    :: IS_READ(w) && answer_result[AT(path)] != FAILED ->
        assert(seen[k] & BIT(answer_result[AT(path)]))
    :: IS_WRITE(w) && answer_result[AT(path)] == OK ->
        inside_assert(landed_ever & BIT(w));
        possible = possible & ~before[k]
    :: else
    fi;
    before[k] = 0;
    seen[k] = 0;
    request[k] = 0;
    sent_on[k] = 0;
#ifdef FENCED
    had_it[k] = 0;
#endif
    answer[AT(path)] = 0;
    answer_result[AT(path)] = 0;
    w = 0
}

inline send_fence(path) {
    printf("EVENT client: a fence\n");
    quarantined[k] = false;
    fences = fences | BIT(next);
    request[k] = next;
    send(path, next);
    next++
}

inline give_up() {
    RARE(GIVEN_UP);
    printf("EVENT client: %d of permit %d is given up, reported as failed\n", request[k], k);
    give_ups_left--;
    failed_set = failed_set | BIT(request[k]);
    request[k] = 0;
    before[k] = 0;
    seen[k] = 0;
#ifndef NO_FENCE
    quarantined[k] = true
#endif
}

/* ---------------------------------------------------------------- paths */

inline client_loses(path) {
    printf("EVENT client: path %d is lost\n", path);
    up[path] = false;
    for (k : 0 .. PERMITS - 1) {
        answer[AT(path)] = 0;
        answer_result[AT(path)] = 0;
        if
        :: sent_on[k] == path + 1 ->
            sent_on[k] = 0;
#ifdef FENCED
            had_it[k] = path + 1;
#endif
            if
            :: IS_FENCE(request[k]) ->  /* the next one has a sequence of its own */
                request[k] = 0;
                quarantined[k] = true
            :: else
            fi
        :: else
        fi
    }
    k = 0
}

/* What the path had not delivered is gone; what waited is dropped; what runs goes on. */
inline server_loses(path) {
    printf("EVENT server: path %d is closed\n", path);
    open[path] = false;
    for (k : 0 .. PERMITS - 1) {
        to_server[AT(path)] = 0;
        if
        :: waiting[AT(path)] != 0 ->
            RARE(WAITER_DROPPED);
            waiting[AT(path)] = 0
        :: else
        fi
    }
    k = 0
}

inline accepted(path) {
    printf("EVENT path %d is up again\n", path);
    up[path] = true;
#ifdef FENCED
    for (k : 0 .. PERMITS - 1) {
        if
        :: quarantined[k] && had_it[k] == path + 1 ->
            quarantined[k] = false;
            had_it[k] = 0
        :: else
        fi
    }
    k = 0;
#endif
    open[path] = true
}

inline forget() {
    RARE(SESSION_FORGOTTEN);
    printf("EVENT server: the session is forgotten\n");
    for (q : 0 .. PERMITS - 1) {
        newest[q] = 0;
        result[q] = NONE
    }
    landed = 0
}

/* ---------------------------------------------------------------- who acts */

#if PERMITS == 1
#define EACH_PERMIT(what, p) what(p, 0)
#define ALL_PERMITS(what) what(0)
#else
#define EACH_PERMIT(what, p) what(p, 0) what(p, 1)
#define ALL_PERMITS(what) (what(0) && what(1))
#endif
#if PATHS == 2
#define EACH_PATH(what) what(0) what(1)
#define ALL_PATHS(what) (what(0) && what(1))
#else
#define EACH_PATH(what) what(0) what(1) what(2)
#define ALL_PATHS(what) (what(0) && what(1) && what(2))
#endif

/* Paths, and permits, are alike until the first of them is used: 0 is the first. */
#define NOT_ALIKE(p) (p == 0 || next > 1 || losses_left < LOSSES)
#define PERMIT_NOT_ALIKE(i) (i == 0 || next > 1)

/* The link is announced up, seen from the permits: no request was given up and not fenced. */
#define SETTLED_ONE(i) (!quarantined[i] && !IS_FENCE(request[i]))
#define SETTLED ALL_PERMITS(SETTLED_ONE)

#ifdef OTHERS_GO_ON
#define MAY_START(i) (!quarantined[i])
#else
#define MAY_START(i) SETTLED
#endif

#ifdef FENCED
#define MAY_SEND_AGAIN(p, i) (had_it[i] == p + 1)
#define FENCES false
#else
#define MAY_SEND_AGAIN(p, i) true
#define FENCES true
#endif

#define CLIENT_SENDS(p, i) \
    :: d_step { \
        up[p] && request[i] == 0 && MAY_START(i) && writes_left > 0 && NOT_ALIKE(p) && \
        PERMIT_NOT_ALIKE(i) -> \
            k = i; \
            start_write(p) \
       } \
    :: d_step { \
        up[p] && request[i] == 0 && MAY_START(i) && reads_left > 0 && NOT_ALIKE(p) && \
        PERMIT_NOT_ALIKE(i) -> \
            k = i; \
            start_read(p) \
       } \
    :: d_step { \
        up[p] && request[i] != 0 && sent_on[i] == 0 && SETTLED && MAY_SEND_AGAIN(p, i) -> \
            k = i; \
            send(p, request[k]) \
       } \
    :: d_step { up[p] && quarantined[i] && FENCES -> k = i; send_fence(p) } \
    :: d_step { up[p] && answer[SLOT(p, i)] != 0 -> k = i; answered(p) }

#define SERVER_WORKS(p, i) \
    :: d_step { open[p] && to_server[SLOT(p, i)] != 0 -> k = i; arrives(p) } \
    :: d_step { running[SLOT(p, i)] != 0 && !effect[SLOT(p, i)] -> k = i; lands(p) } \
    :: d_step { \
        running[SLOT(p, i)] != 0 && effect[SLOT(p, i)] -> \
            k = i; \
            w = (IS_READ(running[SLOT(p, i)]) -> got[SLOT(p, i)] : OK); \
            ends(p) \
       } \
    :: d_step { \
        running[SLOT(p, i)] != 0 && errors_left > 0 -> \
            k = i; \
            errors_left--; \
            w = FAILED; \
            ends(p) \
       }

#if PERMITS == 1
#define NOTHING_RUNS(p) (!running[SLOT(p, 0)])
#else
#define NOTHING_RUNS(p) (!running[SLOT(p, 0)] && !running[SLOT(p, 1)])
#endif

#define PATH(p) \
    EACH_PERMIT(CLIENT_SENDS, p) \
    EACH_PERMIT(SERVER_WORKS, p) \
    :: d_step { \
        up[p] && losses_left > 0 && path_losses_left[p] > 0 && NOT_ALIKE(p) -> \
            losses_left--; \
            path_losses_left[p]--; \
            client_loses(p) \
       } \
    :: d_step { \
        open[p] && up[p] && losses_left > 0 && path_losses_left[p] > 0 && NOT_ALIKE(p) -> \
            losses_left--; \
            path_losses_left[p]--; \
            server_loses(p) \
       } \
    /* The other side notices, sooner or later. */ \
    :: d_step { up[p] && !open[p] -> client_loses(p) } \
    :: d_step { open[p] && !up[p] -> server_loses(p) } \
    /* Accepted anew only when what the path had before has ended. One that comes back earlier, with \
     * chunks of its own, is one more path: with three there are runs in which the first one's \
     * operations outlive it while the others work. */ \
    :: d_step { !up[p] && !open[p] && NOTHING_RUNS(p) -> accepted(p) }

#define GIVE_UP(p, i) \
    :: d_step { \
        ALL_PATHS(DOWN_ONE) && request[i] != 0 && !IS_FENCE(request[i]) && give_ups_left > 0 -> \
            k = i; \
            give_up() \
       }

#define DOWN_ONE(p) (!up[p])
#define CLOSED_ONE(p) (!open[p])
#define ENDED_ONE(p) (!open[p] && NOTHING_RUNS(p))
#ifdef FORGET_EARLY
#define SESSION_OVER ALL_PATHS(CLOSED_ONE)
#else
#define SESSION_OVER ALL_PATHS(ENDED_ONE)
#endif
#define UNKNOWN_ONE(i) (newest[i] == 0)

inline finished() {
    assert(writes_left == 0 && reads_left == 0);
    for (q : 0 .. PERMITS - 1) {
        assert(request[q] == 0 && !quarantined[q])
    }
    assert((answered_set | failed_set | fences) == BIT(next) - BIT(1));
    assert((answered_set & failed_set) == 0)
}

active proctype world() {
    d_step {
        for (q : 0 .. PATHS - 1) {
            up[q] = true;
            open[q] = true;
            path_losses_left[q] = PATH_LOSSES
        }
        for (q : 0 .. PERMITS - 1) {
            result[q] = NONE
        }
        c_code { if (rare_once++ == 0) atexit(rare_print); }
    }
    do
    EACH_PATH(PATH)
    EACH_PERMIT(GIVE_UP, 0)
    :: d_step { SESSION_OVER && (!ALL_PERMITS(UNKNOWN_ONE) || landed != 0) -> forget() }
    /* Nothing can happen any more: everything was answered, every permit is home. */
    :: timeout -> d_step { finished() }; break
    od
}
