#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/text.h"
#include "probe/internal/block_store.h"
#include "probe/internal/schema.h"
#include "probe/internal/sqlite.h"
#include "probe/run_file.h"

namespace bedplate::probe {
namespace {

// Ranks and workers find room even when short-lived processes have used up the limit.
constexpr std::int64_t kReservedProcesses = 1'000;
constexpr std::size_t kShortText = 80;
constexpr std::size_t kMostCommand = 4096;
constexpr std::size_t kMostNote = 16 * 1024;
constexpr std::size_t kMostMeta = 1 << 20;
constexpr std::size_t kMostName = 1024;

// Cut so that no character is torn, then made valid: what comes from the job may be any bytes.
std::string clean(std::string_view text, std::size_t most) {
  if (text.size() > most) {
    while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
    text = text.substr(0, most);
  }
  return to_utf8(text);
}

bool is_last_word(std::string_view key) { return key == "exception" || key == "exit"; }

std::string checked_new(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, error))) {
    throw Error(Code::kExists,
                "{} exists already: a recording is never written over another; give a new folder",
                path.string());
  }
  return path.string();
}

// A connection whose tables are there, so that statements can be members after it.
struct Connection : Database {
  explicit Connection(const std::string& path) : Database(path, Access::kCreate) {
    exec("PRAGMA synchronous = OFF");  // the header says why
    exec(fmt::format("PRAGMA application_id = {}", kApplicationId).c_str());
    exec("PRAGMA journal_mode = WAL");  // where shared memory is refused (some network mounts)
                                        // SQLite keeps its own mode
    exec("PRAGMA wal_autocheckpoint = 512");
    exec("PRAGMA journal_size_limit = 2097152");
    exec("PRAGMA cache_size = -3072");
    exec("PRAGMA temp_store = MEMORY");
    exec("BEGIN IMMEDIATE");
    exec(kSchemaSql);
    exec(fmt::format("INSERT INTO meta VALUES('schema', '{}')", kRunSchema).c_str());
    exec("COMMIT");
    // The tables themselves go into the main file: without its log a run is then short of data, not
    // unreadable.
    exec("PRAGMA wal_checkpoint(TRUNCATE)");
  }
};

struct Tables {
  Tables(const std::string& path, const RunLimits& limits)
      : database(path),
        store(database, limits),
        meta(database, "INSERT OR REPLACE INTO meta VALUES(?1, ?2)"),
        machine(database, "INSERT OR REPLACE INTO machine VALUES(?1, ?2)"),
        signal(database, "INSERT OR REPLACE INTO signal VALUES(?1, ?2, ?3)"),
        update_process(database,
                       "UPDATE process SET ppid = ?3, end = ?4, comm = ?5, command = ?6, "
                       "executable = ?7, rank = ?8, "
                       "local_rank = ?9, world_size = ?10, role = ?11, hook = ?12, wait_status = "
                       "?13, oom_killed = ?14 "
                       "WHERE pid = ?1 AND start = ?2"),
        insert_process(database,
                       "INSERT INTO process VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, "
                       "?12, ?13, ?14)"),
        resource(database,
                 "INSERT OR REPLACE INTO resource VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"),
        note(database, "INSERT INTO note(pid, t, key, value) VALUES(?1, ?2, ?3, ?4)") {}

  void begin() {
    if (!database.in_transaction()) database.exec("BEGIN IMMEDIATE");
  }

  Connection database;
  BlockStore store;
  Statement meta, machine, signal, update_process, insert_process, resource, note;
};

struct KeyHash {
  std::size_t operator()(const std::pair<int, Nanos>& key) const {
    return std::hash<Nanos>()(key.second) * 31 + static_cast<std::size_t>(key.first);
  }
};

}  // namespace

// All but the growing part is small and goes into the tables at once, inside the transaction that
// the next flush commits.
struct RunWriter::State {
  State(const std::filesystem::path& path, const RunLimits& given)
      : limits(given), tables(std::make_unique<Tables>(checked_new(path), given)) {}

  // Runs `work` in the open transaction; after the first failure the writer is closed and says so
  // ever after.
  template <typename Work>
  auto guarded(Work work) {
    if (!tables) throw Error(failure_code, "{}", failure);
    try {
      tables->begin();
      return work(*tables);
    } catch (const Error& error) {
      failure_code = error.code();
      failure = error.what();
      tables.reset();  // rolls back; the log keeps what was committed even when it cannot be folded
                       // in
      throw;
    }
  }

  void put_meta(Tables& t, std::string_view key, std::string_view value) {
    const std::string text = clean(value, kMostMeta);
    t.meta.bind_text(1, key).bind_text(2, text).run();
  }

  void flush(Tables& t, BlockStore::Fold fold) {
    t.store.write(fold);
    const std::pair<std::string_view, std::int64_t> counts[] = {
        {"processes_dropped", processes_dropped},
        {"notes_dropped", notes_dropped},
        {"series_dropped", t.store.dropped()}};
    for (const auto& [key, count] : counts) {
      if (count > 0) put_meta(t, key, fmt::to_string(count));
    }
    t.database.exec("COMMIT");
  }

  void put_process(Tables& t, const Process& process);
  bool admit(const Process& process);
  SeriesId list_of(Tables& t, int pid, StreamType type);

  RunLimits limits;
  std::unique_ptr<Tables> tables;  // null: closed
  Code failure_code = Code::kInvalid;
  std::string failure = "the recording is closed";

  std::unordered_map<std::string, std::vector<SeriesId>> by_subject;
  struct Lists {
    SeriesId steps = -1;  // -1: not made yet
    SeriesId events = -1;
  };
  std::unordered_map<int, Lists> lists;
  std::unordered_set<std::pair<int, Nanos>, KeyHash> unrecorded;  // alive, beyond the limit
  std::unordered_set<int> resource_pids;
  std::int64_t processes = 0, process_bytes = 0, processes_dropped = 0;
  std::int64_t notes = 0, note_bytes = 0, notes_dropped = 0;
  std::int64_t machine_bytes = 0;
};

// Whether a process that has no row yet gets one.
bool RunWriter::State::admit(const Process& process) {
  const bool matters = !process.role.empty() && process.role != "other";
  const std::int64_t most =
      limits.processes - (matters ? 0 : std::min(kReservedProcesses, limits.processes / 4));
  const std::pair<int, Nanos> key{process.pid, process.start};
  if (processes < most) {
    if (unrecorded.erase(key) > 0) --processes_dropped;
    return true;
  }
  // Counted once: when first heard of, and then not again at its end.
  if (unrecorded.insert(key).second) ++processes_dropped;
  if (process.end) unrecorded.erase(key);
  return false;
}

void RunWriter::State::put_process(Tables& t, const Process& p) {
  const bool roomy = process_bytes < limits.process_bytes;
  const std::string comm = clean(p.comm, kShortText);
  const std::string command = clean(p.command, roomy ? kMostCommand : kShortText);
  const std::string executable = clean(p.executable, roomy ? kMostCommand : kShortText);
  const std::string role = clean(p.role, kShortText);
  const std::string hook = clean(p.hook, kMostName);
  const auto bind = [&](Statement& statement) {
    statement.bind(1, p.pid).bind(2, p.start).bind(3, p.ppid);
    p.end ? statement.bind(4, *p.end) : statement.bind_null(4);
    statement.bind_text(5, comm).bind_text(6, command).bind_text(7, executable);
    statement.bind(8, p.rank)
        .bind(9, p.local_rank)
        .bind(10, p.world_size)
        .bind_text(11, role)
        .bind_text(12, hook);
    p.wait_status ? statement.bind(13, *p.wait_status) : statement.bind_null(13);
    statement.bind(14, p.oom_killed ? 1 : 0).run();
  };
  bind(t.update_process);
  if (t.database.changes() > 0 || !admit(p)) return;
  bind(t.insert_process);
  ++processes;
  process_bytes += static_cast<std::int64_t>(command.size() + executable.size());
}

RunWriter::SeriesId RunWriter::State::list_of(Tables& t, int pid, StreamType type) {
  Lists& own = lists[pid];
  SeriesId& id = type == StreamType::kSteps ? own.steps : own.events;
  if (id < 0) {
    id = t.store.add(type, fmt::format("proc/{}", pid),
                     type == StreamType::kSteps ? "steps" : "events", "trace");
  }
  return id;
}

RunWriter::RunWriter(const std::filesystem::path& database, RunLimits limits)
    : state_(std::make_unique<State>(database, limits)) {}
RunWriter::RunWriter(RunWriter&&) noexcept = default;
RunWriter& RunWriter::operator=(RunWriter&&) noexcept = default;

RunWriter::~RunWriter() {
  if (!state_ || !state_->tables) return;
  try {
    close();
  } catch (const Error&) {
    // close() is the way to hear of it; what was flushed is on disk either way.
  }
}

void RunWriter::meta(std::string_view key, std::string_view value) {
  state_->guarded([&](Tables& t) { state_->put_meta(t, key, value); });
}

void RunWriter::machine(std::string_view path, std::string_view text) {
  state_->guarded([&](Tables& t) {
    const auto room = state_->limits.machine_bytes - state_->machine_bytes;
    const std::string name = clean(path, kMostName);
    const std::string kept = clean(text, static_cast<std::size_t>(std::max<std::int64_t>(0, room)));
    state_->machine_bytes += static_cast<std::int64_t>(kept.size());
    t.machine.bind_text(1, name).bind_text(2, kept).run();
  });
}

void RunWriter::signal(const SignalState& signal) {
  state_->guarded([&](Tables& t) {
    const std::string why = clean(signal.why, kMostNote);
    t.signal.bind_text(1, signal.name).bind(2, signal.seen ? 1 : 0).bind_text(3, why).run();
  });
}

void RunWriter::process(const Process& process) {
  state_->guarded([&](Tables& t) { state_->put_process(t, process); });
}

void RunWriter::resource(const ResourceUse& use) {
  state_->guarded([&](Tables& t) {
    auto& known = state_->resource_pids;
    if (static_cast<std::int64_t>(known.size()) >= state_->limits.processes &&
        !known.contains(use.pid))
      return;
    known.insert(use.pid);
    t.resource.bind(1, use.pid)
        .bind(2, use.peak_rss_bytes)
        .bind(3, use.major_faults)
        .bind(4, use.minor_faults);
    t.resource.bind(5, use.voluntary_switches)
        .bind(6, use.involuntary_switches)
        .bind(7, use.read_bytes);
    t.resource.bind(8, use.write_bytes).bind(9, use.user).bind(10, use.system).run();
  });
}

void RunWriter::step(const Step& step) {
  state_->guarded(
      [&](Tables& t) { t.store.append(state_->list_of(t, step.pid, StreamType::kSteps), step); });
}

void RunWriter::events(int pid, std::span<const Event> events) {
  if (events.empty()) return;
  state_->guarded(
      [&](Tables& t) { t.store.append(state_->list_of(t, pid, StreamType::kEvents), events); });
}

void RunWriter::note(const Note& note) {
  state_->guarded([&](Tables& t) {
    const RunLimits& limits = state_->limits;
    const std::string key = clean(note.key, kMostName);
    const std::string value = clean(note.value, kMostNote);
    const auto bytes = static_cast<std::int64_t>(key.size() + value.size());
    const std::int64_t tenths = is_last_word(note.key) ? 10 : 9;
    if (state_->notes >= limits.notes / 10 * tenths ||
        state_->note_bytes + bytes > limits.note_bytes / 10 * tenths) {
      ++state_->notes_dropped;
      return;
    }
    ++state_->notes;
    state_->note_bytes += bytes;
    t.note.bind(1, note.pid).bind(2, note.t).bind_text(3, key).bind_text(4, value).run();
  });
}

RunWriter::SeriesId RunWriter::series(std::string_view subject, std::string_view metric,
                                      SeriesKind kind, std::string_view source) {
  return state_->guarded([&](Tables& t) {
    const auto type = kind == SeriesKind::kCounter ? StreamType::kCounter : StreamType::kGauge;
    const std::string name = clean(subject, kMostName);
    const SeriesId id = t.store.add(type, name, clean(metric, kMostName), clean(source, kMostName));
    if (id != 0) state_->by_subject[name].push_back(id);
    return id;
  });
}

void RunWriter::sample(SeriesId id, Nanos t, std::int64_t value) {
  state_->guarded([&](Tables& tables) { tables.store.append(id, t, value); });
}

void RunWriter::forget(std::string_view subject) {
  state_->guarded([&](Tables& t) {
    const auto found = state_->by_subject.find(std::string(subject));
    if (found != state_->by_subject.end()) {
      for (const SeriesId id : found->second) t.store.end(id);
      state_->by_subject.erase(found);
    }
    if (!subject.starts_with("proc/")) return;
    const auto pid = to_int(subject.substr(5));
    const auto own = pid ? state_->lists.find(static_cast<int>(*pid)) : state_->lists.end();
    if (own == state_->lists.end()) return;
    for (const SeriesId id : {own->second.steps, own->second.events}) {
      if (id > 0) t.store.end(id);
    }
    state_->lists.erase(own);
  });
}

void RunWriter::flush() {
  state_->guarded([&](Tables& t) { state_->flush(t, BlockStore::Fold::kWhenDue); });
}

bool RunWriter::is_open() const { return state_ && state_->tables; }

void RunWriter::close() {
  state_->guarded([&](Tables& t) {
    state_->flush(t, BlockStore::Fold::kNow);
    // From here on the data is safe: what fails now leaves it in the log.
    t.database.exec("PRAGMA synchronous = FULL");
    t.database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    try {
      t.database.exec("PRAGMA journal_mode = DELETE");  // one file, readable anywhere
    } catch (const Error& error) {
      if (error.code() != Code::kUnavailable) throw;  // somebody reads it: it stays in WAL mode
    }
  });
  state_->tables.reset();
}

}  // namespace bedplate::probe
