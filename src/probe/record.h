// Runs a job and records it: the run folder, the job's own cgroup, the trace, the recorder, and the
// supervisor that keeps all of them out of the job's way.
//
//   os::Supervisor supervisor;                          // before any thread is started
//   Recording recording(supervisor, {.arguments = job, .version = "0.1.0", .hook = hook_files()});
//   if (const auto failure = recording.start()) return failure->exit_code;   // nothing is left
//   behind const os::Ended ended = recording.wait(…);          // the run folder is complete after
//   this
//
// The constructor throws Error{kExists | kInvalid} for a folder that must not be used, and the
// error of the last place tried when a run can be kept nowhere. From start() on nothing that goes
// wrong with the recording reaches the job: it becomes a remark.
//
// Threads: used by the main thread; the recorder runs in one of its own.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/embedded.h"
#include "os/supervise.h"
#include "probe/collector.h"

namespace bedplate::probe {

struct RecordOptions {
  std::vector<std::string> arguments;                // the job
  std::optional<std::filesystem::path> folder = {};  // default: a new one in the working folder
  double hz = 2;                                     // samples a second
  std::string version = {};                          // of Bedplate
  std::span<const EmbeddedFile> hook = {};           // the Python hook; empty: no step events
  bool keep_stdout = false;                          // the caller still has to write there
};

class Recording {
 public:
  Recording(os::Supervisor& supervisor, RecordOptions options);
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording();

  const std::filesystem::path& folder() const;

  // nullopt: the job runs. Otherwise it could not be executed and the run folder is gone again.
  std::optional<os::ExecFailure> start();

  // Until the job's first process has ended and the recorder has written its last samples, which
  // takes five seconds at most. `live` is called twice a second, between `pause` and `resume` not.
  struct Live {
    std::function<void(const CollectorStatus&)> show = {};
    std::function<void()> pause = {};  // the job is stopped by the terminal, and so are we
    std::function<void()> resume = {};
  };
  os::Ended wait(const Live& live);

  // What the user should know of the recording, in the order it came up.
  std::vector<std::string> remarks() const;

 private:
  struct Stage;
  std::unique_ptr<Stage> stage_;
};

}  // namespace bedplate::probe
