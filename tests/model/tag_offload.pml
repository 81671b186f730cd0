/* Tag matching split between a device and software, for the model checker spin.
 * tests/model/run_tag_offload.py verifies it.
 *
 * MESSAGES messages of one sender and RECEIVES posted receives, each with the tag A or B, a receive
 * with both as well (a wild card); one receive may be cancelled. Software and device talk by three
 * queues: operations, reports of messages, results of operations. Anything that can happen next
 * happens in any order. The rules are those of rtrs/tag/offload_matcher.h and rtrs/tag/device.h.
 *
 * What must hold: a message and a receive are matched once, if they match; and when all is quiet
 * there is no message and no receive that match each other, and would both rather have each other
 * than what they have (an earlier one, or any at all). So order is never violated.
 *
 * Rules can be left out, to see that they are needed. Each must make the verification fail:
 *   NO_HAND_OVER       H2: a new tag is awake at once, whatever was counted
 *   NOT_A_PREFIX       H1: a receive is given to the device though one before it is not there
 *   COUNT_EARLY        H3: a message counts as handled before it is matched
 *   NOT_REMOVED        H3: a receive that the software took stays in the device
 *   NOT_PASSED_OVER    H4: the software matches a receive whose cancelling is under way
 */

#ifndef MESSAGES
#define MESSAGES 3
#endif
#ifndef RECEIVES
#define RECEIVES 3
#endif
#ifndef CAPACITY
#define CAPACITY 2
#endif
#ifndef CANCELS
#define CANCELS 1
#endif

#define NONE 15
#define A 1
#define B 2

/* Kinds of operations. */
#define ADD 0
#define REMOVE 1
#define SYNC 2

/* Where a receive is, as the software sees it. */
#define TO_COME 0
#define IN_SOFTWARE 1
#define IN_DEVICE 2
#define CANCELLING 3
#define TAKEN 4         /* matched by the software, the device has to forget it */
#define OVER 5

byte tag[MESSAGES];
byte pattern[RECEIVES];
byte taker[MESSAGES];   /* which receive has it */
byte taken[RECEIVES];   /* which message it has */
byte where[RECEIVES];
bit adding[RECEIVES];
bit removing[RECEIVES];
bit waits[MESSAGES];    /* unexpected, in software */
bit cancelled[RECEIVES];
byte posted = 0;
byte cancels = 0;
byte handled = 0;
bit agreed = 1;
bit syncing = 0;

/* The device. Its list is in the order of posting. */
byte sent = 0;
byte counted = 0;
bit held[RECEIVES];
bit awake[RECEIVES];

chan operations = [8] of { byte, byte, byte };          /* kind, receive, handled */
chan reports = [MESSAGES] of { byte, byte };            /* message, receive or NONE */
chan results = [8] of { byte, byte, byte, bit, bit };   /* kind, receive, handled, done, differs */

byte i, j, kind, r, m, h;
bit done, differs;

#define MATCHES(message, receive) ((tag[message] & pattern[receive]) != 0)

inline match(message, receive) {
    printf("EVENT message %d goes to receive %d\n", message, receive);
    assert(taker[message] == NONE && taken[receive] == NONE && !cancelled[receive]);
    assert(MATCHES(message, receive));
    taker[message] = receive;
    taken[receive] = message
}

/* A place in the device's list is free again when nothing of it is outstanding. */
#define OCCUPIES(receive) \
    (where[receive] == IN_DEVICE || where[receive] == CANCELLING || adding[receive] || \
     removing[receive])

inline feed() {
    i = 0;
    j = 0;
    do
    :: i < RECEIVES ->
        if
        :: OCCUPIES(i) -> j++
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < posted && agreed ->
        if
        :: where[i] == IN_SOFTWARE ->
            if
            :: j < CAPACITY ->
                where[i] = IN_DEVICE;
                adding[i] = 1;
                j++;
                printf("EVENT receive %d is given to the device, handled %d\n", i, handled);
                operations ! ADD, i, handled
            :: else -> break
#ifdef NOT_A_PREFIX
            :: true -> skip
#endif
            fi
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0;
    j = 0
}

inline sync() {
    if
    :: !syncing ->
        syncing = 1;
        operations ! SYNC, NONE, handled
    :: else
    fi
}

inline post() {
    printf("EVENT receive %d is posted\n", posted);
    r = posted;
    posted++;
    i = 0;
    do
    :: i < MESSAGES && !(waits[i] && MATCHES(i, r)) -> i++
    :: else -> break
    od;
    if
    :: i < MESSAGES ->
        waits[i] = 0;
        where[r] = OVER;
        match(i, r);
        i = 0
    :: else ->
        where[r] = IN_SOFTWARE;
        feed()
    fi;
    r = 0
}

inline cancel(receive) {
    cancels++;
    if
    :: where[receive] == IN_SOFTWARE ->
        where[receive] = OVER;
        cancelled[receive] = 1
    :: else ->
        where[receive] = CANCELLING;
        removing[receive] = 1;
        operations ! REMOVE, receive, handled
    fi;
    printf("EVENT receive %d is to be cancelled\n", receive)
}

#ifdef NOT_PASSED_OVER
#define OPEN(receive) \
    (where[receive] == IN_SOFTWARE || where[receive] == IN_DEVICE || where[receive] == CANCELLING)
#else
#define OPEN(receive) (where[receive] == IN_SOFTWARE || where[receive] == IN_DEVICE)
#endif

/* The software takes the report of a message. */
inline report() {
    reports ? m, r;
    if
    :: r != NONE ->
        assert(where[r] == IN_DEVICE || where[r] == CANCELLING);
        where[r] = OVER;
        match(m, r)
    :: else ->
        printf("EVENT the software handles message %d\n", m);
#ifdef COUNT_EARLY
        handled++;
        agreed = 0;
        sync();
#endif
        r = 0;
        do
        :: r < posted && !(OPEN(r) && MATCHES(m, r)) -> r++
        :: else -> break
        od;
        if
        :: r < posted ->
            match(m, r);
            if
            :: where[r] == IN_SOFTWARE -> where[r] = OVER
            :: where[r] == CANCELLING -> where[r] = TAKEN
            :: else ->
#ifdef NOT_REMOVED
                where[r] = OVER
#else
                where[r] = TAKEN;
                removing[r] = 1;
                operations ! REMOVE, r, handled
#endif
            fi
        :: else -> waits[m] = 1
        fi;
#ifndef COUNT_EARLY
        handled++;
        agreed = 0;
        sync()
#endif
    fi;
    feed();
    m = 0;
    r = 0
}

inline result() {
    results ? kind, r, h, done, differs;
    if
    :: kind == ADD -> adding[r] = 0
    :: kind == REMOVE ->
        removing[r] = 0;
        if
        :: where[r] == CANCELLING && done ->
            printf("EVENT receive %d is cancelled\n", r);
            where[r] = OVER;
            cancelled[r] = 1
        :: where[r] == TAKEN ->
            assert(done);
            where[r] = OVER
        :: else
        fi
    :: kind == SYNC ->
        syncing = 0;
        if
        :: h != handled -> sync()
        :: else
        fi
    fi;
    if
    :: h == handled && differs -> agreed = 0
    :: h == handled && !differs && kind == SYNC -> agreed = 1
    :: else
    fi;
    feed();
    kind = 0; r = 0; h = 0; done = 0; differs = 0
}

/* The device works off an operation. */
inline operate() {
    operations ? kind, r, h;
    differs = (h != counted);
    done = 1;
    if
    :: kind == ADD ->
        held[r] = 1;
#ifdef NO_HAND_OVER
        awake[r] = 1
#else
        awake[r] = 0
#endif
    :: kind == REMOVE ->
        done = held[r];
        held[r] = 0;
        awake[r] = 0
    :: else
    fi;
    if
    :: !differs ->
        i = 0;
        do
        :: i < RECEIVES ->
            awake[i] = held[i];
            i++
        :: else -> break
        od;
        i = 0
    :: else
    fi;
    results ! kind, r, h, done, differs;
    kind = 0; r = 0; h = 0; done = 0; differs = 0
}

inline arrive() {
    i = 0;
    do
    :: i < RECEIVES && !(awake[i] && MATCHES(sent, i)) -> i++
    :: else -> break
    od;
    if
    :: i < RECEIVES ->
        printf("EVENT the device matches message %d\n", sent);
        held[i] = 0;
        awake[i] = 0;
        reports ! sent, i
    :: else ->
        printf("EVENT message %d is unexpected\n", sent);
        counted++;
        reports ! sent, NONE
    fi;
    sent++;
    i = 0
}

inline quiet() {
    i = 0;
    do
    :: i < MESSAGES ->
        j = 0;
        do
        :: j < RECEIVES ->
            assert(cancelled[j] || !MATCHES(i, j) ||
                   !(taker[i] > j && taken[j] > i));
            j++
        :: else -> break
        od;
        i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < RECEIVES ->
        assert(!adding[i] && !removing[i] && where[i] != CANCELLING && where[i] != TAKEN);
        i++
    :: else -> break
    od;
    assert(agreed && !syncing)
}

init {
    atomic {
        i = 0;
        do
        :: i < MESSAGES ->
            if
            :: tag[i] = A
            :: tag[i] = B
            fi;
            taker[i] = NONE;
            i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < RECEIVES ->
            if
            :: pattern[i] = A
            :: pattern[i] = B
            :: pattern[i] = A | B
            fi;
            taken[i] = NONE;
            i++
        :: else -> break
        od;
        i = 0
    }
    do
    :: atomic { sent < MESSAGES -> arrive() }
    :: atomic { posted < RECEIVES -> post() }
    :: atomic { cancels < CANCELS && (where[0] == IN_SOFTWARE || where[0] == IN_DEVICE) ->
                cancel(0) }
    :: atomic { cancels < CANCELS && (where[1] == IN_SOFTWARE || where[1] == IN_DEVICE) ->
                cancel(1) }
    :: atomic { nempty(operations) && nfull(results) -> operate() }
    :: atomic { nempty(reports) -> report() }
    :: atomic { nempty(results) -> result() }
    :: atomic { sent == MESSAGES && posted == RECEIVES && empty(operations) && empty(reports) &&
                empty(results) -> quiet(); break }
    od
}
