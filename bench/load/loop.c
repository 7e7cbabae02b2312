/* The closed loop of the load generator: keeps `window` messages outstanding.
 *
 * `native.py` compiles this file at first use and calls `run` in slices. Every session is open, subscribed and proved
 * before; every frame is encoded before. A message costs one write(); what arrives is counted by length, and of QoS 1
 * and 2 only the packet id is read, to acknowledge it. `struct loop` has a twin in native.py: change both.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { GOING = 0, ENDED = 1, CLOSED = -1, NOT_READING = -2, UNEXPECTED = -3, SILENT = -4, FAILED = -5 };
enum { BUFFER = 1 << 18, EVENTS = 256, BETWEEN = 1000, SATURATED = 1000 };
static const double NAP = 0.0003; /* see window.py */

struct session { /* one socket that is read */
    int32_t fd;
    int32_t subscriber;
    int32_t carried; /* bytes of an unfinished packet */
    int32_t reserved;
    uint8_t carry[1024];
};

struct loop {
    /* the load */
    const int32_t *publishers;
    const uint8_t *frames; /* one after the other, each of `write_length` bytes */
    struct session *sessions;
    int64_t publisher_count, frame_count, write_length, per_write, window;
    int64_t session_count, qos, frame_length, id_offset, copies;
    double silence; /* seconds without anything received before outstanding messages count as lost */
    int64_t patience; /* times in a row that this may happen */
    /* the state, zero at first */
    int64_t sent, lost, delivered, done, received, acknowledged, written_off;
    int64_t begun, unsent; /* frames; bytes of the last of them that are still to be written */
    double area, measured, heard; /* outstanding messages times seconds */
    int64_t epoll, error, packet_length;
    uint8_t packet[16]; /* that nobody expected */
};

static uint8_t buffer[BUFFER + 1024];
static uint8_t replies[BUFFER + 1024];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int unexpected(struct loop *l, const uint8_t *packet, int64_t length) {
    l->packet_length = length < 16 ? length : 16;
    memcpy(l->packet, packet, (size_t)l->packet_length);
    return UNEXPECTED;
}

static void reply(int64_t *at, uint8_t kind, const uint8_t *id) {
    uint8_t *out = replies + *at;
    out[0] = kind, out[1] = 2, out[2] = id[0], out[3] = id[1];
    *at += 4;
}

/* Takes the whole packets of `data`; answers how many bytes they have, or an error. */
static int64_t take(struct loop *l, struct session *s, const uint8_t *data, int64_t length) {
    int64_t at = 0, out = 0;
    while (length - at >= 4) {
        const uint8_t *packet = data + at;
        if (s->subscriber && packet[0] == (uint8_t)(0x30 | l->qos << 1)) {
            if (length - at < l->frame_length) break;
            reply(&out, l->qos == 1 ? 0x40 : 0x50, packet + l->id_offset); /* PUBACK or PUBREC */
            l->delivered++;
            at += l->frame_length;
        } else if (s->subscriber && l->qos == 2 && packet[0] == 0x62) { /* PUBREL */
            reply(&out, 0x70, packet + 2);
            at += 4;
        } else if (!s->subscriber && l->qos == 2 && packet[0] == 0x50 && packet[1] == 2) { /* PUBREC */
            reply(&out, 0x62, packet + 2);
            at += 4;
        } else if (!s->subscriber && packet[0] == (l->qos == 1 ? 0x40 : 0x70)) { /* PUBACK or PUBCOMP */
            l->acknowledged++;
            at += 4;
        } else {
            return unexpected(l, packet, length - at);
        }
    }
    if (out && write(s->fd, replies, (size_t)out) != out) return NOT_READING; /* acknowledgements are small */
    return at;
}

static int receive(struct loop *l, struct session *s) {
    if (s->carried) memcpy(buffer, s->carry, (size_t)s->carried);
    ssize_t got = read(s->fd, buffer + s->carried, BUFFER);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return GOING;
    if (got <= 0) return l->error = got < 0 ? errno : 0, CLOSED;
    if (l->qos == 0) {
        l->received += got;
        l->delivered = l->received / l->frame_length;
        return GOING;
    }
    int64_t length = got + s->carried, taken = take(l, s, buffer, length);
    if (taken < 0) return (int)taken;
    s->carried = (int32_t)(length - taken);
    if (s->carried > (int32_t)sizeof s->carry) return unexpected(l, buffer + taken, length - taken);
    memcpy(s->carry, buffer + taken, (size_t)s->carried);
    return GOING;
}

/* Writes up to `room` frames; a short write is completed before anything else. Answers how many frames were begun. */
static int64_t send_frames(struct loop *l, int64_t room) {
    int64_t begun = 0;
    while (l->unsent || begun < room) {
        int fresh = !l->unsent;
        if (fresh) l->unsent = l->write_length, l->begun++;
        int64_t number = l->begun - 1;
        const uint8_t *end = l->frames + (number % l->frame_count + 1) * l->write_length;
        ssize_t size = write(l->publishers[number % l->publisher_count], end - l->unsent, (size_t)l->unsent);
        begun += fresh;
        if (size < 0) {
            if (errno == EAGAIN || errno == EINTR) break;
            l->error = errno;
            return CLOSED;
        }
        l->unsent -= size;
        if (l->unsent) break;
    }
    return begun;
}

/* Until `until` (CLOCK_MONOTONIC), or when not `sending`, until nothing is outstanding (ENDED). */
int run(struct loop *l, double until, int sending, int measuring) {
    struct epoll_event events[EVENTS];
    if (!l->epoll) {
        l->epoll = epoll_create1(EPOLL_CLOEXEC);
        for (int64_t i = 0; i < l->session_count; i++) {
            struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = &l->sessions[i]}};
            if (epoll_ctl((int)l->epoll, EPOLL_CTL_ADD, l->sessions[i].fd, &event)) return l->error = errno, FAILED;
        }
        l->heard = now();
    }
    int64_t outstanding = -1;
    double before = now();
    for (;;) {
        double moment = now();
        if (measuring && outstanding >= 0) {
            l->area += (double)outstanding * (moment - before);
            l->measured += moment - before;
        }
        before = moment;
        l->done = l->qos ? (l->delivered < l->acknowledged ? l->delivered : l->acknowledged) : l->delivered / l->copies;
        outstanding = l->sent - l->lost - l->done;
        if (outstanding < 0) l->lost += outstanding, outstanding = 0; /* what was written off arrived after all */
        if (!sending && !outstanding && !l->unsent) return ENDED;
        if (moment >= until) return GOING;
        int64_t room = sending ? (l->window - outstanding) / l->per_write : 0;
        if (room > BETWEEN) room = BETWEEN; /* then look at what has arrived */
        int64_t begun = room > 0 || l->unsent ? send_frames(l, room) : 0;
        if (begun < 0) return (int)begun;
        l->sent += begun * l->per_write;
        int timeout = 0;
        if (l->unsent || begun < BETWEEN) {
            timeout = l->unsent ? 1 : 20;
            if ((until - moment) * 1e3 < timeout) timeout = (int)((until - moment) * 1e3);
            if (l->window >= SATURATED) {
                struct timespec nap = {.tv_nsec = (long)(NAP * 1e9)};
                nanosleep(&nap, 0);
                timeout = timeout > 0;
            }
        }
        int count = epoll_wait((int)l->epoll, events, EVENTS, timeout);
        if (count < 0 && errno != EINTR) return l->error = errno, FAILED;
        for (int i = 0; i < count; i++) {
            int status = receive(l, events[i].data.ptr);
            if (status) return status;
        }
        if (count > 0) {
            l->heard = moment, l->written_off = 0;
        } else if (moment - l->heard > l->silence && l->sent - l->lost > l->done && !l->unsent) {
            l->lost += l->sent - l->lost - l->done;
            l->heard = moment;
            if (++l->written_off == l->patience) return SILENT;
        }
    }
}

void finish(struct loop *l) {
    if (l->epoll) close((int)l->epoll);
    l->epoll = 0;
}
