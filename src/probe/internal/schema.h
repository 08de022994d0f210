// The tables of run.db. Change one: raise kRunSchema and teach read_run() the old form.
#pragma once

#include <cstdint>

namespace bedplate::probe {

constexpr std::int64_t kApplicationId =
    0x42504C54;  // "BPLT": what file(1) and read_run() know a run by

// PRAGMA application_id must come before the first table. A tail row holds what one flush brought
// for one type of stream (kind: 1 samples of many streams, 3 steps, 4 events of `stream`); see
// internal/block_store.h.
// A block's id is its stream's, shifted, with its number in the stream: a plain table packs blobs
// of any size well, which one with a compound key does not.
constexpr int kBlockNumberBits = 24;

constexpr const char* kSchemaSql = R"sql(
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE machine(path TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE signal(name TEXT PRIMARY KEY, seen INTEGER NOT NULL, why TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE process(pid INTEGER NOT NULL, start INTEGER NOT NULL, ppid INTEGER NOT NULL, end INTEGER, comm TEXT NOT NULL,
  command TEXT NOT NULL, executable TEXT NOT NULL, rank INTEGER NOT NULL, local_rank INTEGER NOT NULL,
  world_size INTEGER NOT NULL, role TEXT NOT NULL, hook TEXT NOT NULL, wait_status INTEGER, oom_killed INTEGER NOT NULL,
  PRIMARY KEY(pid, start)) WITHOUT ROWID;
CREATE TABLE resource(pid INTEGER PRIMARY KEY, peak_rss_bytes INTEGER NOT NULL, major_faults INTEGER NOT NULL,
  minor_faults INTEGER NOT NULL, voluntary_switches INTEGER NOT NULL, involuntary_switches INTEGER NOT NULL,
  read_bytes INTEGER NOT NULL, write_bytes INTEGER NOT NULL, user_ns INTEGER NOT NULL, system_ns INTEGER NOT NULL);
CREATE TABLE note(id INTEGER PRIMARY KEY, pid INTEGER NOT NULL, t INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL);
CREATE TABLE stream(id INTEGER PRIMARY KEY, type INTEGER NOT NULL, subject TEXT NOT NULL, metric TEXT NOT NULL,
  source TEXT NOT NULL);
CREATE TABLE block(id INTEGER PRIMARY KEY, level INTEGER NOT NULL, items INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE tail(id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, stream INTEGER NOT NULL, data BLOB NOT NULL);
)sql";

}  // namespace bedplate::probe
