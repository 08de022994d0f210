#include <unistd.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "probe/internal/block_store.h"
#include "probe/internal/codec.h"
#include "probe/internal/schema.h"
#include "probe/internal/sqlite.h"
#include "probe/run_file.h"

namespace bedplate::probe {
namespace {

namespace fs = std::filesystem;

// More than any writer puts into a file: beyond it the file's pages point in circles.
constexpr std::int64_t kMostRows = 1'000'000;
constexpr std::size_t kMostBlockBytes = 8 << 20;

std::string text(std::string_view bytes) { return to_utf8(bytes); }

[[noreturn]] void corrupt(const fs::path& file, std::string_view what) {
  throw Error(Code::kCorrupt, "{}", damaged_text(file.string(), what));
}

// Reads the tables of an open database into `run_`.
class Reader {
 public:
  Reader(Database& database, const fs::path& file) : database_(database), file_(file) {}

  RunData read() {
    check_format();
    small_tables();
    streams();
    blocks();
    tail();
    arrange();
    return std::move(run_);
  }

 private:
  struct Stream {
    std::int64_t id = 0;
    int type = 0;
    int pid = 0;
    std::string subject, metric, source;
    std::vector<Sample> samples;
    std::vector<Step> steps;
    std::vector<Event> events;
  };

  template <typename Row>
  void each(std::string_view sql, Row row) {
    Statement statement(database_, sql);
    for (std::int64_t n = 0; statement.step(); ++n) {
      if (n >= kMostRows) corrupt(file_, "a table without end");
      row(statement);
    }
  }

  void check_format();
  void small_tables();
  void streams();
  void blocks();
  void tail();
  void arrange();
  Stream* stream(std::int64_t id);
  std::int64_t take(Stream& stream, std::string_view data);

  Database& database_;
  const fs::path& file_;
  RunData run_;
  std::vector<Stream> streams_;  // ascending id
};

void Reader::check_format() {
  const std::int64_t application = database_.pragma("PRAGMA application_id");
  const std::int64_t tables = database_.pragma(
      "SELECT count(*) FROM sqlite_schema WHERE name IN ('meta', 'stream', 'block')");
  if (application != kApplicationId) {
    throw Error(Code::kCorrupt,
                "{}: an SQLite database, but not a run of Bedplate; give the folder that `bedplate "
                "run` printed",
                file_.string());
  }
  if (tables == 0) {
    throw Error(
        Code::kCorrupt,
        "{}: holds nothing: its recording ended at once, or its run.db-wal was not copied with it",
        file_.string());
  }
  each("SELECT key, value FROM meta",
       [&](Statement& row) { run_.meta[text(row.bytes(0))] = text(row.bytes(1)); });
  const auto schema = to_int(run_.meta[std::string(run_meta::kSchema)]);
  if (!schema || *schema < 1) corrupt(file_, "no format version");
  if (*schema > kRunSchema) {
    const auto version = run_.meta.find(std::string(run_meta::kVersion));
    throw Error(Code::kUnsupported,
                "{}: written by a newer Bedplate{}: its format is {}, this one reads up to {}; "
                "update Bedplate",
                file_.string(), version == run_.meta.end() ? "" : " (" + version->second + ")",
                *schema, kRunSchema);
  }
}

void Reader::small_tables() {
  each("SELECT path, text FROM machine",
       [&](Statement& r) { run_.machine[text(r.bytes(0))] = text(r.bytes(1)); });
  each("SELECT name, seen, why FROM signal ORDER BY name", [&](Statement& r) {
    run_.signals.push_back({text(r.bytes(0)), r.number(1) != 0, text(r.bytes(2))});
  });
  each(
      "SELECT pid, start, ppid, end, comm, command, executable, rank, local_rank, world_size, "
      "role, hook, wait_status, "
      "oom_killed FROM process ORDER BY start, pid",
      [&](Statement& r) {
        Process p;
        p.pid = static_cast<int>(r.number(0));
        p.start = r.number(1);
        p.ppid = static_cast<int>(r.number(2));
        if (!r.is_null(3)) p.end = r.number(3);
        p.comm = text(r.bytes(4));
        p.command = text(r.bytes(5));
        p.executable = text(r.bytes(6));
        p.rank = static_cast<int>(r.number(7));
        p.local_rank = static_cast<int>(r.number(8));
        p.world_size = static_cast<int>(r.number(9));
        p.role = text(r.bytes(10));
        p.hook = text(r.bytes(11));
        if (!r.is_null(12)) p.wait_status = static_cast<int>(r.number(12));
        p.oom_killed = r.number(13) != 0;
        run_.processes.push_back(std::move(p));
      });
  each(
      "SELECT pid, peak_rss_bytes, major_faults, minor_faults, voluntary_switches, "
      "involuntary_switches, read_bytes, "
      "write_bytes, user_ns, system_ns FROM resource ORDER BY pid",
      [&](Statement& r) {
        run_.resources.push_back({static_cast<int>(r.number(0)), r.number(1), r.number(2),
                                  r.number(3), r.number(4), r.number(5), r.number(6), r.number(7),
                                  r.number(8), r.number(9)});
      });
  each("SELECT pid, t, key, value FROM note ORDER BY id", [&](Statement& r) {
    run_.notes.push_back(
        {static_cast<int>(r.number(0)), r.number(1), text(r.bytes(2)), text(r.bytes(3))});
  });
}

void Reader::streams() {
  each("SELECT id, type, subject, metric, source FROM stream ORDER BY id", [&](Statement& r) {
    Stream s;
    s.id = r.number(0);
    s.type = static_cast<int>(r.number(1));
    s.subject = text(r.bytes(2));
    s.metric = text(r.bytes(3));
    s.source = text(r.bytes(4));
    if (s.type < 1 || s.type > static_cast<int>(StreamType::kEvents))
      corrupt(file_, "a stream of unknown type");
    if (!streams_.empty() && s.id <= streams_.back().id) corrupt(file_, "streams out of order");
    if (s.type >= static_cast<int>(StreamType::kSteps)) {
      const auto pid = s.subject.starts_with("proc/")
                           ? to_int(std::string_view(s.subject).substr(5))
                           : std::nullopt;
      if (!pid || *pid < 0 || *pid > INT32_MAX) corrupt(file_, "a process without a number");
      s.pid = static_cast<int>(*pid);
    }
    streams_.push_back(std::move(s));
  });
}

Reader::Stream* Reader::stream(std::int64_t id) {
  const auto found =
      std::lower_bound(streams_.begin(), streams_.end(), id,
                       [](const Stream& s, std::int64_t wanted) { return s.id < wanted; });
  return found != streams_.end() && found->id == id ? &*found : nullptr;
}

// How many items it held.
std::int64_t Reader::take(Stream& stream, std::string_view data) {
  const auto held = [&] {
    return std::ssize(stream.samples) + std::ssize(stream.steps) + std::ssize(stream.events);
  };
  const auto before = held();
  if (data.size() > kMostBlockBytes) corrupt(file_, "a block that is too large");
  bool whole = false;
  switch (static_cast<StreamType>(stream.type)) {
    case StreamType::kCounter:
    case StreamType::kGauge:
      whole = decode(data, stream.samples);
      break;
    case StreamType::kSteps:
      whole = decode(data, stream.steps);
      break;
    case StreamType::kEvents:
      whole = decode(data, stream.events);
      break;
  }
  if (!whole) corrupt(file_, fmt::format("a block of {} {}", stream.subject, stream.metric));
  return held() - before;
}

void Reader::blocks() {
  std::int64_t last = INT64_MIN;
  each("SELECT id, items, data FROM block ORDER BY id", [&](Statement& r) {
    Stream* const owner = stream(r.number(0) >> kBlockNumberBits);
    if (r.number(0) <= last || owner == nullptr) corrupt(file_, "blocks out of order");
    last = r.number(0);
    if (take(*owner, r.bytes(2)) != r.number(1))
      corrupt(file_,
              fmt::format("a block of {} {} that lost items", owner->subject, owner->metric));
  });
}

void Reader::tail() {
  std::int64_t last = INT64_MIN;
  std::vector<StreamSample> samples;
  each("SELECT id, kind, stream, data FROM tail ORDER BY id", [&](Statement& r) {
    if (r.number(0) <= last) corrupt(file_, "rows out of order");
    last = r.number(0);
    if (r.number(1) != 1) {
      Stream* const owner = stream(r.number(2));
      if (owner == nullptr || owner->type != r.number(1)) corrupt(file_, "a row of no stream");
      take(*owner, r.bytes(3));
      return;
    }
    samples.clear();
    if (r.bytes(3).size() > kMostBlockBytes || !decode(r.bytes(3), samples))
      corrupt(file_, "a row of samples");
    for (const auto& [id, sample] : samples) {
      Stream* const owner = stream(id);
      if (owner == nullptr || owner->type > static_cast<int>(StreamType::kGauge))
        corrupt(file_, "a sample of no series");
      owner->samples.push_back(sample);
    }
  });
}

// A process number that was used again continues the series of its predecessor: a counter goes on
// from where it was.
void append_later(Series& series, std::vector<Sample>&& samples) {
  if (samples.empty()) return;
  std::uint64_t offset = 0;
  if (series.kind == SeriesKind::kCounter && !series.samples.empty() &&
      samples.front().value < series.samples.back().value) {
    offset = static_cast<std::uint64_t>(series.samples.back().value);
  }
  for (const Sample& sample : samples) {
    if (!series.samples.empty() && sample.t <= series.samples.back().t) continue;
    series.samples.push_back(
        {sample.t, static_cast<std::int64_t>(static_cast<std::uint64_t>(sample.value) + offset)});
  }
}

void Reader::arrange() {
  std::stable_sort(streams_.begin(), streams_.end(), [](const Stream& a, const Stream& b) {
    return std::tie(a.subject, a.metric) < std::tie(b.subject, b.metric);
  });
  for (Stream& s : streams_) {
    if (s.type <= static_cast<int>(StreamType::kGauge)) {
      if (run_.series.empty() || run_.series.back().subject != s.subject ||
          run_.series.back().metric != s.metric) {
        const auto kind = s.type == static_cast<int>(StreamType::kCounter) ? SeriesKind::kCounter
                                                                           : SeriesKind::kGauge;
        run_.series.push_back({s.subject, s.metric, kind, s.source, {}});
      }
      append_later(run_.series.back(), std::move(s.samples));
    } else if (s.type == static_cast<int>(StreamType::kSteps)) {
      for (Step& step : s.steps) step.pid = s.pid;
      run_.steps.insert(run_.steps.end(), s.steps.begin(), s.steps.end());
    } else if (!s.events.empty()) {
      auto& events = run_.events[s.pid];
      events.insert(events.end(), s.events.begin(), s.events.end());
    }
    s = Stream();  // a long run is large: not twice in memory
  }
  std::erase_if(run_.series, [](const Series& series) { return series.samples.empty(); });
  std::stable_sort(run_.steps.begin(), run_.steps.end(), [](const Step& a, const Step& b) {
    return std::tie(a.pid, a.index) < std::tie(b.pid, b.index);
  });
  for (auto& [pid, events] : run_.events) {
    std::stable_sort(events.begin(), events.end(),
                     [](const Event& a, const Event& b) { return a.start < b.start; });
  }
}

RunData read_database(const fs::path& opened, Database::Access access, const fs::path& named) {
  Database database(opened.string(), access);
  database.exec("BEGIN");  // one picture, even of a run that goes on
  return Reader(database, named).read();
}

// A copy of a run's files in a folder of its own, gone with it.
class PrivateCopy {
 public:
  static std::optional<PrivateCopy> make(const fs::path& file) {
    std::error_code error;
    for (const fs::path& parent : {fs::temp_directory_path(error), fs::path("/dev/shm")}) {
      std::string name = (parent / "bedplate-read-XXXXXX").string();
      if (::mkdtemp(name.data()) == nullptr) continue;
      PrivateCopy copy;
      copy.folder_ = name;
      fs::copy_file(file, copy.folder_ / "run.db", error);
      if (error) continue;
      const fs::path log = file.string() + "-wal";
      if (fs::exists(log)) fs::copy_file(log, copy.folder_ / "run.db-wal", error);
      if (!error) return copy;
    }
    return std::nullopt;
  }
  PrivateCopy(PrivateCopy&& other) noexcept : folder_(std::exchange(other.folder_, {})) {}
  PrivateCopy& operator=(PrivateCopy&&) = delete;
  ~PrivateCopy() {
    std::error_code ignored;  // a temporary folder that stays is no reason to lose what was read
    if (!folder_.empty()) fs::remove_all(folder_, ignored);
  }
  fs::path file() const { return folder_ / "run.db"; }

 private:
  PrivateCopy() = default;
  fs::path folder_;
};

// What is there under the name, told apart before SQLite sees it.
fs::path find_database(const fs::path& run) {
  std::error_code error;
  const auto status = fs::status(run, error);
  if (!fs::exists(status)) {
    throw Error(Code::kNotFound, "{}: {}; give the folder that `bedplate run` printed",
                run.string(), error ? error.message() : "no such file or folder");
  }
  if (!fs::is_directory(status)) return run;
  const fs::path file = run / "run.db";
  const auto inner = fs::status(file, error);
  if (fs::is_directory(inner)) {
    throw Error(Code::kCorrupt, "{} is a folder; give the folder that holds a file run.db",
                file.string());
  }
  if (error == std::errc::permission_denied) throw errno_error(error.value(), file.string());
  if (!fs::exists(inner)) {
    throw Error(Code::kNotFound, "{} has no run.db; give the folder that `bedplate run` printed",
                run.string());
  }
  return file;
}

}  // namespace

RunData read_run(const fs::path& run) {
  const fs::path file = find_database(run);
  std::error_code error;
  if (!fs::is_regular_file(file, error)) {
    throw Error(Code::kCorrupt,
                "{} is not a regular file; give the folder that `bedplate run` printed",
                file.string());
  }
  if (::access(file.c_str(), R_OK) != 0)
    throw errno_error(errno, fmt::format("cannot read {}", file.string()));
  if (fs::file_size(file, error) == 0 && !error) {
    throw Error(Code::kCorrupt, "{} is empty: its recording ended before anything was written",
                file.string());
  }
  try {
    return read_database(file, Database::Access::kRead, file);
  } catch (const Error& first) {
    const bool blocked = first.code() == Code::kPermission || first.code() == Code::kIo ||
                         first.code() == Code::kNoSpace || first.code() == Code::kNotFound;
    if (!blocked) {
      if (first.code() == Code::kCorrupt &&
          std::string_view(first.what()).find("not a database") != std::string_view::npos) {
        throw Error(Code::kCorrupt,
                    "{}: not a run of Bedplate, or its beginning is damaged; give the folder that "
                    "`bedplate run` printed",
                    file.string());
      }
      throw;
    }
    // A log needs a shared index beside it, which a read-only or full folder does not take: then a
    // copy is read.
    const auto log_size = fs::file_size(file.string() + "-wal", error);
    if (error || log_size == 0) return read_database(file, Database::Access::kReadImmutable, file);
    const auto copy = PrivateCopy::make(file);
    if (!copy) {
      throw Error(first.code(), "{}; copy the run folder to where you may write, and read the copy",
                  first.what());
    }
    return read_database(copy->file(), Database::Access::kRead, file);
  }
}

}  // namespace bedplate::probe
