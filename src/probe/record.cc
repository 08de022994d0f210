#include "probe/record.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "host/host.h"
#include "host/host_json.h"
#include "os/cgroup.h"
#include "probe/run_folder.h"
#include "probe/sampler.h"

namespace bedplate::probe {
namespace {

namespace fs = std::filesystem;

constexpr Nanos kLastSamplesWithin = 5 * kSecond;

std::string as_json(const std::vector<std::string>& arguments) {
  nlohmann::json array = nlohmann::json::array();
  for (const auto& argument : arguments) array.push_back(to_utf8(argument));
  return array.dump();
}

// The file behind a descriptor, when it is an ordinary one: where the job's output can be read
// later.
std::optional<std::string> regular_file(const os::HostRoot& host, int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  const auto path = host.link(fmt::format("/proc/self/fd/{}", fd));
  if (!path) return std::nullopt;
  return to_utf8(*path);
}

std::map<std::string, std::string> first_meta(const os::HostRoot& host,
                                              const RecordOptions& options,
                                              const fs::path& folder) {
  std::error_code ignored;
  std::map<std::string, std::string> meta;
  const auto set = [&meta](std::string_view key, std::string value) {
    meta.emplace(key, std::move(value));
  };
  set(run_meta::kVersion, options.version);
  set(run_meta::kId, to_utf8(folder.filename().native()));
  set(run_meta::kCommand, as_json(options.arguments));
  set(run_meta::kFolder, to_utf8(fs::current_path(ignored).native()));
  set(run_meta::kUserId, std::to_string(::geteuid()));
  if (const auto path = regular_file(host, STDOUT_FILENO)) set("stdout_path", *path);
  if (const auto path = regular_file(host, STDERR_FILENO)) set("stderr_path", *path);
  return meta;
}

// PYTHONPATH separates by ":" and knows no escape.
bool fits_python_path(const fs::path& path) { return path.native().find(':') == std::string::npos; }

}  // namespace

// All that a recorder which hangs in the kernel may still touch; see Recording::~Recording.
struct Recording::Stage {
  Stage(os::Supervisor& the_supervisor, RecordOptions the_options)
      : supervisor(the_supervisor), options(std::move(the_options)) {}

  os::Supervisor& supervisor;
  RecordOptions options;
  os::HostRoot host;
  os::CgroupTree cgroups{host};
  std::unique_ptr<os::JobCgroup> job;
  std::optional<RunFolder> folder;
  fs::path hook;
  std::unique_ptr<Collector> collector;
  std::vector<std::string> remarks;
  pid_t root_pid = 0;  // as /proc numbers it
  bool recorder_hangs = false;

  // Makes the folder with all in it; throws when it is no place for a run.
  void settle_in(const fs::path& path) {
    folder.emplace(path);
    try {
      hook.clear();
      if (!options.hook.empty()) {
        const auto written = write_hook(folder->path(), options.hook);
        if (fits_python_path(written)) {
          hook = written;
        } else {
          remarks.push_back(fmt::format(
              "no step events: PYTHONPATH cannot name {}, which holds a ':'; choose another "
              "folder with --out",
              to_utf8(folder->path().native())));
        }
      }
      CollectorOptions collecting;
      collecting.run_folder = folder->path();
      collecting.hook_folder = hook;
      collecting.samplers = all_samplers();
      collecting.host = &host;
      collecting.cgroups = &cgroups;
      collecting.job = job.get();
      collecting.hz = options.hz;
      collecting.meta = first_meta(host, options, folder->path());
      collecting.machine = {{"host.json", host::to_json(host::describe(host))}};
      collector = std::make_unique<Collector>(std::move(collecting));
    } catch (...) {
      folder->abandon();
      throw;
    }
  }
};

Recording::Recording(os::Supervisor& supervisor, RecordOptions options)
    : stage_(std::make_unique<Stage>(supervisor, std::move(options))) {
  auto& stage = *stage_;
  os::JobCgroup::clear_leftovers(stage.host, stage.cgroups, os::kJobCgroupPrefix);
  stage.job =
      std::make_unique<os::JobCgroup>(stage.host, stage.cgroups, os::job_cgroup_name(stage.host));
  const auto name = default_run_name(real_clock().wall_now(), ::getpid());
  std::string refusals;
  for (const auto& candidate : run_folder_candidates(stage.options.folder, name)) {
    try {
      stage.settle_in(candidate);
      if (!refusals.empty()) {
        stage.remarks.push_back(fmt::format("{}; the run is kept in {} instead", refusals,
                                            to_utf8(stage.folder->path().native())));
      }
      return;
    } catch (const Error& error) {
      const bool asked_for = stage.options.folder && refusals.empty();
      if (asked_for && (error.code() == Code::kExists || error.code() == Code::kInvalid)) throw;
      if (!refusals.empty()) refusals += "; ";
      refusals += error.what();
    }
  }
  throw Error(Code::kIo, "nothing was run, for nothing could be recorded: {}", refusals);
}

Recording::~Recording() {
  if (stage_->job) stage_->job->remove();
  // A recorder that hangs still looks at the stage; the process ends soon, and with it the memory.
  static Stage* left_behind = nullptr;
  if (stage_->recorder_hangs) left_behind = stage_.release();
  (void)left_behind;
}

const fs::path& Recording::folder() const { return stage_->folder->path(); }

std::optional<os::ExecFailure> Recording::start() {
  auto& stage = *stage_;
  os::StartRequest request;
  request.arguments = stage.options.arguments;
  request.environment = job_environment(current_environment(), stage.folder->path(),
                                        stage.collector->ring_path(), stage.hook);
  request.enter = [job = stage.job.get()] { job->enter(0); };
  request.keep_stdout = stage.options.keep_stdout;
  const auto abandon = [&stage] {
    stage.collector.reset();
    stage.folder->abandon();
  };
  std::optional<os::ExecFailure> failure;
  try {
    failure = stage.supervisor.start(request);
  } catch (...) {
    abandon();
    throw;
  }
  if (failure) {
    abandon();
    return failure;
  }
  stage.job->hide(stage.supervisor.witness());
  stage.root_pid = stage.supervisor.child().proc_pid(stage.host);
  stage.collector->start(stage.root_pid);
  return std::nullopt;
}

os::Ended Recording::wait(const Live& live) {
  auto& stage = *stage_;
  os::WaitOptions options;
  if (live.show) options.tick = [&] { live.show(stage.collector->status()); };
  options.before_stop = live.pause;
  options.after_stop = live.resume;
  const auto ended = stage.supervisor.wait(options);

  auto& collector = *stage.collector;
  collector.process_ended(stage.root_pid, ended.wait_status);
  collector.meta(run_meta::kExitCode, std::to_string(ended.exit_code()));
  if (const auto signal = ended.signal())
    collector.meta(run_meta::kSignal, std::to_string(*signal));
  const Nanos before = real_clock().now();
  collector.stop(kLastSamplesWithin);
  stage.recorder_hangs = real_clock().now() - before >= kLastSamplesWithin;
  return ended;
}

std::vector<std::string> Recording::remarks() const {
  auto all = stage_->remarks;
  if (stage_->collector) {
    for (auto& remark : stage_->collector->remarks()) all.push_back(std::move(remark));
  }
  return all;
}

}  // namespace bedplate::probe
