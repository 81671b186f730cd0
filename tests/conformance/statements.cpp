#include "tests/conformance/statements.h"

#include <algorithm>
#include <array>

#include "rtrs/base/assert.h"

namespace conformance {
namespace {

constexpr std::array table{
    Statement{"C1", Subject::client,
              "request-56-bytes: private data of 56 bytes as laid out, bytes 0, 1 and 45..55 zero"},
    Statement{"C2", Subject::client,
              "magic-and-version: magic 0x1bbd, version 0x0200, little-endian"},
    Statement{"C3", Subject::client,
              "cids-in-order: cid 0 first, then one after another, the same cid_num in all"},
    Statement{
        "C4", Subject::client,
        "uuids: one random sess_uuid per path and one random paths_uuid per session, for life"},
    Statement{"C5", Subject::client,
              "first-conn: set on a session's first path and on reconnects, clear on an added "
              "path's first connection"},
    Statement{"C6", Subject::client, "recon-cnt: 1 first, one more with each attempt"},
    Statement{"C7", Subject::client,
              "connection-parameters: retry_count 7, rnr_retry_count 7, no resources for reads"},
    Statement{
        "C8", Subject::client,
        "bad-answers-refused: short, wrong magic, major or errno refused; bytes 20..55 ignored"},
    Statement{"C9", Subject::client,
              "long-answers: 196 bytes of an accept and 148 of a reject are taken"},
    Statement{"C10", Subject::client,
              "sizes-from-cid-0: queue depth, sizes and flags are those of the answer on cid 0"},
    Statement{"C11", Subject::client,
              "depth-is-kept: another queue_depth than the session's is refused"},
    Statement{"C12", Subject::server,
              "version: any minor, major 2 only, else -104 in a 56-byte reject"},
    Statement{"C13", Subject::server, "cid-range: cid beyond cid_num, or cid_num above 4096: -104"},
    Statement{"C14", Subject::server, "unknown-session: without first_conn: -6"},
    Statement{"C15", Subject::server, "same-addresses: a second path between them: -17"},
    Statement{"C16", Subject::server,
              "not-connecting: a connection for a connected path, or a taken cid: -104"},
    Statement{"C17", Subject::server, "whole-answer: every accept has the whole body"},
    Statement{"C18", Subject::server, "recon-cnt-free: recon_cnt decides nothing"},
    Statement{"C19", Subject::server,
              "no-read-resources: responder_resources and initiator_depth 0 are taken"},
    Statement{"C20", Subject::server, "depth-is-constant: the same queue depth after a restart"},
    Statement{"C21", Subject::server, "both-families: IPv4 and IPv6, by default port 1234"},
    Statement{"C22", Subject::server,
              "info-receive: a receive of 272 bytes before cid 0 is accepted"},
    Statement{"C23", Subject::client,
              "info-receive: a receive of 8 + 16 * depth bytes before INFO_REQ"},
    Statement{"C24", Subject::client,
              "info-request: a plain send of 272 bytes on cid 0 when all connections are up"},
    Statement{"C25", Subject::client, "session-name: 1..254 bytes, NUL padded, no / and no ."},
    Statement{"C26", Subject::server,
              "receives: 512 on cid 0, depth on the others, before INFO_RSP"},
    Statement{"C27", Subject::server,
              "info-too-early: INFO_REQ before all connections closes the path"},
    Statement{"C28", Subject::server, "bad-names: an invalid or clashing name closes the path"},
    Statement{
        "C29", Subject::server,
        "info-response: sg_cnt divides depth; whole chunks; their sum; 8 + 16 * sg_cnt bytes"},
    Statement{"C30", Subject::client,
              "chunks-in-order: chunks in descriptor order, stride max_io_size + max_hdr_size"},
    Statement{"C31", Subject::client,
              "receives: 1024 on cid 0, 2 * depth on the others, before I/O"},
    Statement{"C32", Subject::both, "never-out-of-receives: no RNR NAK at full load"},
    Statement{"C33", Subject::both,
              "info-checked: INFO messages of wrong type or length are refused"},
    Statement{"C34", Subject::both, "immediate: big-endian, permit << M | offset for any depth"},
    Statement{"C35", Subject::client,
              "placement: data, user message, request message, without gaps; offset of the last"},
    Statement{"C36", Subject::client,
              "read-placement: a read writes only the messages, behind the data's room"},
    Statement{"C37", Subject::client, "permits: one request at a time for each of 0..depth-1"},
    Statement{"C38", Subject::client,
              "same-connection: the answer is expected where the request went"},
    Statement{
        "C39", Subject::client,
        "answer-forms: write with immediate, or send with immediate of 8 bytes under NEW_RKEY"},
    Statement{"C40", Subject::client,
              "new-keys: the answer's key is the next request's; an unchanged one is taken"},
    Statement{"C41", Subject::client,
              "bad-key-answers: wrong permit, type or length ends the path"},
    Statement{"C42", Subject::client,
              "need-inval: asked for only with a key that can be invalidated there"},
    Statement{"C43", Subject::client, "invalidation-receive: recognised without IBV_WC_WITH_INV"},
    Statement{"C44", Subject::client,
              "source-is-kept: source memory is not reused before the answer"},
    Statement{"C45", Subject::server,
              "one-answer: exactly one, where the request came, with its permit"},
    Statement{"C46", Subject::server,
              "invalidates: after the data, before the answer, on errors too"},
    Statement{"C47", Subject::server, "answer-type: 2 if it invalidated, else 1"},
    Statement{"C48", Subject::server,
              "answer-form: NEW_RKEY: always with a key; else a write with immediate of no bytes"},
    Statement{"C49", Subject::server,
              "keys-for-the-path: a chunk's key is good on every connection"},
    Statement{"C50", Subject::server,
              "revoked-meanwhile: the chunk is shut while its request runs, open when the answer "
              "is seen"},
    Statement{
        "C51", Subject::server,
        "data-first: read data is written before the answer, as much as was asked and produced"},
    Statement{"C52", Subject::server,
              "flush-either-way: as a read without descriptor and as a write"},
    Statement{"C53", Subject::server, "errno: its magnitude in bits 27..19"},
    Statement{"C54", Subject::server,
              "requests-checked: permit, offset, bounds, user length, each type's minimum"},
    Statement{"C55", Subject::server,
              "always-answered: no well-addressed request stays unanswered"},
    Statement{"C56", Subject::server,
              "own-bytes-only: no bytes that the request's data did not produce"},
    Statement{"C57", Subject::both, "unknown-immediates: ignored, the receive comes back"},
    Statement{"C58", Subject::both,
              "heartbeats: on cid 0, one interval after the other, unless one is unanswered"},
    Statement{"C59", Subject::both, "heartbeat-answers: at once, under load too"},
    Statement{"C60", Subject::both,
              "silence: any message is life; silence is death after the timeout"},
    Statement{"C61", Subject::both,
              "heartbeats-need-nothing: no permit, no wait for send queue room"},
    Statement{"C62", Subject::client,
              "reconnects: drops every connection, then tries again without end"},
    Statement{"C63", Subject::client,
              "survives-refusals: -104 while the server drains is tried again"},
    Statement{"C64", Subject::server,
              "drains-first: running operations end before the path may come back"},
    Statement{"C65", Subject::server, "closes-devices: with the last path"},
    Statement{"C66", Subject::client,
              "opens-again: SESS_INFO and OPEN after the first path is back; new id and capacity"},
    Statement{"C67", Subject::client,
              "fenced-writes: not on another path before the old one is fenced"},
    Statement{"C68", Subject::server,
              "one-at-a-time: the same permit on two paths runs one after the other"},
    Statement{
        "C69", Subject::both,
        "message-sizes: 36, 264, 8 and 32 bytes; padding zero when sent, ignored when received"},
    Statement{"C70", Subject::client,
              "control-messages: on cid 0; SESS_INFO and OPEN as reads of 36 and 56, CLOSE as a "
              "write of 0"},
    Statement{"C71", Subject::both,
              "versions: SESS_INFO version 2, answer the smaller; not required"},
    Statement{"C72", Subject::server,
              "open-answer: 56 bytes, type 3, a block size, 512-byte sectors"},
    Statement{"C73", Subject::client,
              "answer-type-free: the header type of answers is not required"},
    Statement{"C74", Subject::server, "open-twice: the same id"},
    Statement{"C75", Subject::server, "access: ro many, rw one, migration two; -1, -2 and -22"},
    Statement{"C76", Subject::server, "io-errors: unknown device -107, type -22, operation -95"},
    Statement{"C77", Subject::server,
              "sizes: the sector of a flush is ignored; bi_size is the data's length, or the data "
              "is none"},
    Statement{"C78", Subject::server, "unknown-flags: taken"},
    Statement{"C79", Subject::server, "flush-flags: a flush with FUA, SYNC or PREFLUSH is a flush"},
    Statement{"C80", Subject::server, "durable: flush and FUA are answered when the data is safe"},
    Statement{"C81", Subject::client,
              "only-what-is-offered: WRITE_ZEROES, DISCARD, SECURE_ERASE only if the open answer "
              "has them"},
    Statement{"C82", Subject::client, "transfer-limit: at most max_io_size and one descriptor"},
    Statement{"C83", Subject::server, "close-unknown: succeeds"},
    Statement{"C84", Subject::server,
              "no-leftovers: answers are zeroed; max_write_zeroes_sectors is true"},
    Statement{"C85", Subject::run, "kernel-client: maps, verifies, syncs, discards, unmaps"},
    Statement{"C86", Subject::run,
              "kernel-server: the same from our client, with 1, 2 and CPUs + 1 connections"},
    Statement{"C87", Subject::run, "kernel-client-two-paths: one lost under load"},
    Statement{"C88", Subject::run, "kernel-client-no-path: EIO, and remapped later"},
    Statement{"C89", Subject::run, "kernel-server-restart: our client comes back"},
    Statement{"C90", Subject::run, "reads-are-invalidated: for a kernel client, always"},
    Statement{"C91", Subject::run, "idle-day: 24 hours of heartbeats"},
    Statement{"C92", Subject::both,
              "geometries: depth 1, 2, 3, 64, 512, 1025; chunks of 8 KiB, 128 KiB, 1 MiB, where "
              "the 28 bits allow"},
    Statement{"C93", Subject::both, "big-headers: max_hdr_size 65536"},
};
static_assert(table.size() == 93);

}  // namespace

std::span<const Statement> statements() noexcept { return table; }

const Statement& statement(std::string_view id) noexcept {
    const auto* found = std::ranges::find(table, id, &Statement::id);
    RTRS_ASSERT(found != table.end());
    return *found;
}

}  // namespace conformance
