#include "os/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

extern char** environ;

namespace bedplate::os {
namespace {

constexpr std::string_view kDefaultPath = "/bin:/usr/bin";  // as execvp() without PATH

// What the child needs, laid out before the fork so that it allocates nothing.
struct Plan {
  std::vector<std::string> candidates;  // full paths, in the order of PATH
  std::vector<char*> arguments;         // with a free place in front, for a script's interpreter
  std::vector<char*> environment;
  char** environment_block = nullptr;
  int death_signal = 0;
};

std::string path_of(const SpawnRequest& request) {
  if (!request.environment) {
    const char* path = std::getenv("PATH");
    return path ? path : std::string(kDefaultPath);
  }
  for (const auto& variable : *request.environment) {
    if (variable.starts_with("PATH=")) return variable.substr(5);
  }
  return std::string(kDefaultPath);
}

std::vector<std::string> candidates(const SpawnRequest& request) {
  const auto& command = request.arguments.front();
  if (command.find('/') != std::string::npos) return {command};
  std::vector<std::string> paths;
  if (command.empty()) return paths;
  const std::string path = path_of(request);
  for (const auto folder : split(path, ':')) {
    paths.push_back(folder.empty() ? "./" + command : fmt::format("{}/{}", folder, command));
  }
  return paths;
}

// A shell runs a file that the kernel does not know as a script, unless it looks binary.
bool looks_like_a_script(const char* path) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char head[128];
  const ssize_t n = ::read(fd, head, sizeof head);
  ::close(fd);
  return n >= 0 && std::memchr(head, 0, static_cast<std::size_t>(n)) == nullptr;
}

// Returns only when no candidate could be executed, with the reason as a shell would choose it.
int execute(const Plan& plan) {
  int reason = ENOENT;
  char* const* arguments = plan.arguments.data() + 1;
  for (const auto& path : plan.candidates) {
    ::execve(path.c_str(), arguments, plan.environment_block);
    if (errno == ENOEXEC && looks_like_a_script(path.c_str())) {
      char shell[] = "/bin/sh";
      auto** with_shell = const_cast<char**>(plan.arguments.data());
      with_shell[0] = shell;
      with_shell[1] = const_cast<char*>(path.c_str());
      ::execve(shell, with_shell, plan.environment_block);
    }
    const bool try_next = errno == ENOENT || errno == ENOTDIR || errno == EACCES ||
                          errno == ESTALE || errno == ENODEV || errno == ETIMEDOUT;
    if (errno != ENOENT && errno != ENOTDIR) reason = errno;
    if (!try_next) break;
  }
  return reason;
}

[[noreturn]] void run_child(const SpawnRequest& request, const Plan& plan, int report,
                            pid_t parent) {
  if (request.in_child) request.in_child();
  if (plan.death_signal != 0) {
    ::prctl(PR_SET_PDEATHSIG, plan.death_signal);
    if (::getppid() != parent) ::raise(plan.death_signal);
  }
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    action.sa_handler =
        request.signals.ignored[static_cast<std::size_t>(signal)] ? SIG_IGN : SIG_DFL;
    ::sigaction(signal, &action, nullptr);  // refused for KILL, STOP and those of the C library
  }
  ::sigprocmask(SIG_SETMASK, &request.signals.mask, nullptr);
  const int error_number = execute(plan);
  [[maybe_unused]] const auto n = ::write(report, &error_number, sizeof error_number);
  ::_exit(127);
}

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// The program that a script's first line names; empty for what is no script.
std::string interpreter_of(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char head[256];
  const ssize_t n = fd ? ::read(fd.get(), head, sizeof head) : -1;
  std::string_view line(head, n > 0 ? static_cast<std::size_t>(n) : 0);
  if (!line.starts_with("#!")) return {};
  line = line.substr(2, line.find('\n') - 2);
  const auto parts = words(line);
  return parts.empty() ? std::string() : to_utf8(parts.front());
}

ExecFailure explain(const SpawnRequest& request, const Plan& plan, int error_number) {
  const std::string command = to_utf8(request.arguments.front());
  const auto answer = [&](int exit_code, std::string why) {
    return ExecFailure{error_number, exit_code, fmt::format("{}: {}", command, why)};
  };
  const auto existing = std::ranges::find_if(
      plan.candidates, [](const std::string& path) { return ::access(path.c_str(), F_OK) == 0; });
  if (error_number == ENOENT && existing != plan.candidates.end()) {
    const auto interpreter = interpreter_of(*existing);
    if (interpreter.empty()) return answer(126, "its loader or interpreter does not exist");
    return answer(126, fmt::format("its interpreter {} does not exist", interpreter));
  }
  if (error_number == ENOENT) {
    const bool is_path = command.find('/') != std::string::npos;
    return answer(127, is_path ? "no such file" : "command not found in PATH");
  }
  if (existing != plan.candidates.end() && is_folder(*existing)) return answer(126, "is a folder");
  if (error_number == EACCES) {
    return answer(126,
                  "not executable: no permission (chmod +x?), or the file system is mounted "
                  "noexec");
  }
  if (error_number == ENOEXEC) return answer(126, "not a program for this machine");
  return answer(126, std::strerror(error_number));
}

}  // namespace

InheritedSignals InheritedSignals::of_this_process() {
  InheritedSignals signals;
  ::sigprocmask(SIG_SETMASK, nullptr, &signals.mask);
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    signals.ignored[static_cast<std::size_t>(signal)] =
        ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
  }
  return signals;
}

int Ended::exit_code() const {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::optional<int> Ended::signal() const {
  if (!WIFSIGNALED(wait_status)) return std::nullopt;
  return WTERMSIG(wait_status);
}

pid_t Child::proc_pid(const HostRoot& host) const {
  const auto info = host.read(fmt::format("/proc/self/fdinfo/{}", pidfd_.get())).value_or("");
  for (const auto line : split(info, '\n')) {
    const auto fields = words(line);
    if (fields.size() == 2 && fields[0] == "Pid:") {
      const auto pid = to_int(fields[1]);
      if (pid && *pid > 0) return static_cast<pid_t>(*pid);
    }
  }
  return pid_;
}

bool Child::send(int signal) const { return ::kill(pid_, signal) == 0; }

bool Child::forward(int signal, sigval value) const { return ::sigqueue(pid_, signal, value) == 0; }

std::optional<Ended> Child::try_wait() {
  Ended ended{};
  for (;;) {
    const pid_t got = ::wait4(pid_, &ended.wait_status, WNOHANG, &ended.use);
    if (got == pid_) return ended;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw errno_error(errno, "cannot wait for the job");
    return std::nullopt;
  }
}

std::optional<int> Child::stopped_by() {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG) != 0) return std::nullopt;
  if (info.si_pid == 0 || info.si_code != CLD_STOPPED) return std::nullopt;
  return info.si_status;
}

std::variant<Child, ExecFailure> spawn(const SpawnRequest& request) {
  if (request.arguments.empty()) throw Error(Code::kInvalid, "no command was given");
  Plan plan;
  plan.candidates = candidates(request);
  plan.arguments.push_back(nullptr);
  for (const auto& argument : request.arguments) {
    plan.arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  plan.arguments.push_back(nullptr);
  plan.environment_block = environ;
  if (request.environment) {
    for (const auto& variable : *request.environment) {
      plan.environment.push_back(const_cast<char*>(variable.c_str()));
    }
    plan.environment.push_back(nullptr);
    plan.environment_block = plan.environment.data();
  }
  // A launcher that asked to have this process killed with it means the job. Other signals reach
  // the job by forwarding; SIGKILL cannot be forwarded.
  int death_signal = 0;
  if (::prctl(PR_GET_PDEATHSIG, &death_signal) == 0 && death_signal == SIGKILL) {
    plan.death_signal = SIGKILL;
  }

  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw errno_error(errno, "cannot start the command");
  const UniqueFd from_child(ends[0]);
  UniqueFd to_parent(ends[1]);
  // Signals stay blocked in the child until its own mask is in force.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) run_child(request, plan, to_parent.get(), parent);
  const int fork_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) throw errno_error(fork_error, "cannot start the command");
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));

  to_parent.reset();
  int error_number = 0;
  ssize_t n;
  do {
    n = ::read(from_child.get(), &error_number, sizeof error_number);
  } while (n < 0 && errno == EINTR);
  if (n != sizeof error_number) return Child(pid, std::move(pidfd));
  ::waitpid(pid, nullptr, 0);
  return explain(request, plan, error_number);
}

void guard_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is this one: those below it are open.
    if (::open("/dev/null", O_RDWR | O_CLOEXEC) < 0) return;
  }
}

}  // namespace bedplate::os
