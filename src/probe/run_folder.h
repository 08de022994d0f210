// The folder of one run, and the job's environment that points into it.
//
//   const auto folder = make_run_folder({.wanted = "out/run7"});
//   write_hook(folder.path, hook_files());
//   const auto environment = job_environment(current, folder.path, collector.ring_path());
//
// Throws Error{kExists} when the wanted folder holds something already, Error{kPermission |
// kNoSpace | kIo | kInvalid} when there is no place for a run.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/embedded.h"
#include "base/units.h"

namespace bedplate::probe {

// "bedplate-run-20250131-142503-4242", in local time.
std::string default_run_name(Nanos unix_time, int pid);

// A fresh, empty, writable folder.
class RunFolder {
 public:
  // `path` must not exist or be an empty folder; parents are made. Throws as above.
  explicit RunFolder(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }  // absolute

  // Takes back what was made, for a run that did not come about: all that lies in the folder, the
  // folder itself if it is ours, the parents that were made for it.
  void abandon() noexcept;

 private:
  std::filesystem::path path_;
  std::vector<std::filesystem::path> made_;  // outermost first
};

// Where a run may be kept: the folder that was asked for, else `name` in the working folder; then
// `name` in $TMPDIR (or /tmp). In the order in which they are to be tried.
std::vector<std::filesystem::path> run_folder_candidates(
    const std::optional<std::filesystem::path>& wanted, const std::string& name);

// Writes the files below RUN/hook and returns that folder.
std::filesystem::path write_hook(const std::filesystem::path& run,
                                 std::span<const EmbeddedFile> files);

// `environment` ("NAME=value") with BEDPLATE_TRACE and BEDPLATE_RUN set and `hook` put first on
// PYTHONPATH; an empty `hook` leaves PYTHONPATH alone.
std::vector<std::string> job_environment(std::span<const std::string> environment,
                                         const std::filesystem::path& run, std::string_view trace,
                                         const std::filesystem::path& hook);

// This process's environment.
std::vector<std::string> current_environment();

}  // namespace bedplate::probe
