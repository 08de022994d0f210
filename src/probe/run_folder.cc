#include "probe/run_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <ctime>

#include "base/error.h"
#include "base/text.h"
#include "os/unique_fd.h"

extern char** environ;

namespace bedplate::probe {
namespace {

namespace fs = std::filesystem;

std::string shown(const fs::path& path) { return to_utf8(path.native()); }

// Makes `path` and its missing parents; those that were made are added to `made`.
void make_folders(const fs::path& path, std::vector<fs::path>& made) {
  std::error_code error;
  if (path.has_parent_path() && path.parent_path() != path &&
      !fs::exists(path.parent_path(), error)) {
    make_folders(path.parent_path(), made);
  }
  if (::mkdir(path.c_str(), 0777) == 0) {
    made.push_back(path);
  } else if (errno != EEXIST) {
    throw errno_error(errno, fmt::format("cannot make the run folder {}", shown(path)));
  }
}

// What is made in a run folder, the hook's byte code included, has names shorter than this.
constexpr std::size_t kRoom = 128;

// Before anything is made: a folder whose files then cannot be opened is no use.
void check_length(const fs::path& path) {
  constexpr std::size_t kMost = PATH_MAX - 1 - kRoom;
  if (path.native().size() > kMost) {
    throw Error(Code::kInvalid,
                "the path of the run folder has {} bytes, with the working folder, and at most {} "
                "are possible; give a shorter one",
                path.native().size(), kMost);
  }
  for (const fs::path& part : path) {
    const std::string& name = part.native();
    if (name.size() <= NAME_MAX) continue;
    throw Error(Code::kInvalid,
                "a part of the run folder's path has {} bytes ({}…), and at most {} are possible; "
                "give a shorter one",
                name.size(), to_utf8(name.substr(0, 40)), NAME_MAX);
  }
}

void write_file(const fs::path& path, std::string_view bytes) {
  const std::string what = fmt::format("cannot write {}", shown(path));
  os::UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd) throw errno_error(errno, what);
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw errno_error(errno, what);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  if (::close(fd.release()) != 0) throw errno_error(errno, what);
}

}  // namespace

std::string default_run_name(Nanos unix_time, int pid) {
  const std::time_t seconds = unix_time / kSecond;
  std::tm local{};
  ::localtime_r(&seconds, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &local);
  return fmt::format("bedplate-run-{}-{}", text, pid);
}

RunFolder::RunFolder(const fs::path& path) {
  if (path.empty()) throw Error(Code::kInvalid, "the name of the run folder is empty");
  std::error_code error;
  path_ = fs::absolute(path, error).lexically_normal();
  if (error) throw errno_error(error.value(), "the working folder cannot be told");
  if (!path_.has_filename()) path_ = path_.parent_path();  // "run7/"
  check_length(path_);
  const auto status = fs::status(path_, error);
  if (fs::exists(status)) {
    if (!fs::is_directory(status)) {
      throw Error(Code::kExists, "{} is not a folder; give one that does not exist yet",
                  shown(path_));
    }
    fs::directory_iterator first(path_, error);
    if (!error && first != fs::directory_iterator()) {
      const bool run = fs::exists(path_ / "run.db", error);
      throw Error(Code::kExists, "{} {}; give a folder that does not exist yet or is empty",
                  shown(path_), run ? "holds a run already" : "is not empty");
    }
  }
  try {
    make_folders(path_, made_);
    if (::access(path_.c_str(), W_OK | X_OK) != 0) {
      throw errno_error(errno, fmt::format("cannot write into the run folder {}", shown(path_)));
    }
  } catch (...) {
    abandon();
    throw;
  }
}

void RunFolder::abandon() noexcept {
  std::error_code ignored;
  for (fs::directory_iterator it(path_, ignored); !ignored && it != fs::directory_iterator();) {
    const auto entry = it->path();
    it.increment(ignored);
    std::error_code kept;
    fs::remove_all(entry, kept);
  }
  for (auto it = made_.rbegin(); it != made_.rend(); ++it) ::rmdir(it->c_str());
  made_.clear();
}

std::vector<fs::path> run_folder_candidates(const std::optional<fs::path>& wanted,
                                            const std::string& name) {
  const char* temporary = std::getenv("TMPDIR");
  const fs::path fallback = temporary && *temporary ? temporary : "/tmp";
  return {wanted ? *wanted : fs::path(name), fallback / name};
}

fs::path write_hook(const fs::path& run, std::span<const EmbeddedFile> files) {
  const fs::path hook = run / "hook";
  std::vector<fs::path> made;
  make_folders(hook, made);
  for (const auto& file : files) {
    const fs::path path = hook / file.path;
    make_folders(path.parent_path(), made);
    write_file(path, file.bytes);
  }
  return hook;
}

std::vector<std::string> job_environment(std::span<const std::string> environment,
                                         const fs::path& run, std::string_view trace,
                                         const fs::path& hook) {
  constexpr std::string_view kPythonPath = "PYTHONPATH=";
  std::string python_path = hook.native();
  std::vector<std::string> variables;
  for (const auto& variable : environment) {
    if (variable.starts_with("BEDPLATE_TRACE=") || variable.starts_with("BEDPLATE_RUN=")) continue;
    if (!hook.empty() && variable.starts_with(kPythonPath)) {
      const auto old = variable.substr(kPythonPath.size());
      if (!old.empty()) python_path += ":" + old;
      continue;
    }
    variables.push_back(variable);
  }
  variables.push_back(fmt::format("BEDPLATE_TRACE={}", trace));
  variables.push_back("BEDPLATE_RUN=" + run.native());
  if (!hook.empty()) variables.push_back(std::string(kPythonPath) + python_path);
  return variables;
}

std::vector<std::string> current_environment() {
  std::vector<std::string> variables;
  for (char** each = environ; each && *each; ++each) variables.emplace_back(*each);
  return variables;
}

}  // namespace bedplate::probe
