// How signals reach the job. Terminal and shell behaviour is tested from outside: tests/e2e.
#include "os/supervise.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>

#include "base/error.h"
#include "os/internal/group_witness.h"

extern char** environ;

namespace bedplate::os {
namespace {

std::vector<std::string> whole_environment() {
  std::vector<std::string> variables;
  for (char** each = environ; *each != nullptr; ++each) variables.emplace_back(*each);
  return variables;
}

// Reads from `fd` until `wanted` bytes came or ten seconds went by.
std::string read_some(int fd, std::size_t wanted) {
  std::string text;
  while (text.size() < wanted) {
    pollfd ready{fd, POLLIN, 0};
    if (::poll(&ready, 1, 10'000) != 1) break;
    char block[256];
    const ssize_t n = ::read(fd, block, std::min(sizeof block, wanted - text.size()));
    if (n <= 0) break;
    text.append(block, static_cast<std::size_t>(n));
  }
  return text;
}

// A supervised shell script in a process group of its own; what it prints comes through a pipe.
class Supervised {
 public:
  explicit Supervised(const std::string& script, const std::function<void()>& before = {}) {
    int ends[2];
    BEDPLATE_CHECK(::pipe2(ends, O_CLOEXEC) == 0);
    output_ = ends[0];
    pid_ = ::fork();
    if (pid_ == 0) {
      ::setpgid(0, 0);
      if (before) before();
      ::dup2(ends[1], STDOUT_FILENO);
      Supervisor supervisor;
      if (supervisor.start(
              {.arguments = {"sh", "-c", script}, .environment = whole_environment()})) {
        ::_exit(99);
      }
      ::close(ends[1]);
      end_as(supervisor.wait({}), supervisor.interrupted());
    }
    ::close(ends[1]);
  }
  ~Supervised() {
    ::kill(-pid_, SIGKILL);
    ::close(output_);
  }
  pid_t pid() const { return pid_; }
  std::string output(std::size_t bytes) const { return read_some(output_, bytes); }
  std::string rest() const { return read_some(output_, 1u << 20); }
  int exit_code() const {
    int status = 0;
    BEDPLATE_CHECK(::waitpid(pid_, &status, 0) == pid_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_;
  int output_;
};

// Prints "+" for each USR1 and ends with 7 on USR2.
constexpr const char* kCounting =
    "trap 'printf +' USR1; trap 'exit 7' USR2; printf r; while :; do sleep 0.02; done";

TEST(Supervise, ASignalToUsAloneGoesOnOnce) {
  const Supervised job(kCounting);
  ASSERT_EQ(job.output(1), "r");
  ::kill(job.pid(), SIGUSR1);
  ASSERT_EQ(job.output(1), "+");
  ::kill(job.pid(), SIGUSR2);
  EXPECT_EQ(job.rest(), "");
  EXPECT_EQ(job.exit_code(), 7);
}

TEST(Supervise, ASignalToTheGroupIsNotRepeated) {
  const Supervised job(kCounting);
  ASSERT_EQ(job.output(1), "r");
  ::kill(-job.pid(), SIGUSR1);
  ASSERT_EQ(job.output(1), "+");
  ::kill(-job.pid(), SIGUSR2);
  EXPECT_EQ(job.rest(), "");
  EXPECT_EQ(job.exit_code(), 7);
}

TEST(Supervise, FirstAloneThenToTheGroupAsTimeoutDoesIsStillOnce) {
  const Supervised job(kCounting);
  ASSERT_EQ(job.output(1), "r");
  ::kill(job.pid(), SIGUSR1);
  ::kill(-job.pid(), SIGUSR1);
  ASSERT_EQ(job.output(1), "+");
  ::kill(job.pid(), SIGUSR2);
  EXPECT_EQ(job.rest(), "");
  EXPECT_EQ(job.exit_code(), 7);
}

TEST(Supervise, WhatTheJobSendsToItsParentIsNotSentBack) {
  const Supervised job("trap 'printf +' USR1; kill -USR1 $PPID; sleep 0.2; printf .");
  EXPECT_EQ(job.rest(), ".");
  EXPECT_EQ(job.exit_code(), 0);
}

TEST(Supervise, TheJobsDeathBySignalIsItsExitCode) {
  const Supervised job("printf r; exec sleep 60");
  ASSERT_EQ(job.output(1), "r");
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.exit_code(), 128 + SIGTERM);
}

TEST(Supervise, AParentThatIgnoresChildrenDoesNotHideTheExitCode) {
  const Supervised job("exit 3", [] { std::signal(SIGCHLD, SIG_IGN); });
  EXPECT_EQ(job.exit_code(), 3);
}

TEST(Supervise, AnAlarmSetBeforeReachesTheJob) {
  const Supervised job("trap 'printf a; exit 5' ALRM; printf r; while :; do sleep 0.02; done",
                       [] { ::alarm(1); });
  EXPECT_EQ(job.rest(), "ra");
  EXPECT_EQ(job.exit_code(), 5);
}

TEST(Supervise, TheJobsPipeIsNotHeldOpenByUs) {
  const Supervised job("exec >&-; trap 'exit 4' USR2; while :; do sleep 0.02; done");
  EXPECT_EQ(job.rest(), "");  // end of file while the job lives on
  ::kill(job.pid(), SIGUSR2);
  EXPECT_EQ(job.exit_code(), 4);
}

TEST(GroupWitness, TellsWhatReachedItAndEndsWithItsMaker) {
  GroupWitness witness({});
  ASSERT_GT(witness.pid(), 0);
  ::kill(witness.pid(), SIGUSR1);
  const auto seen = witness.seen(0);
  ASSERT_TRUE(seen);
  EXPECT_EQ(sigismember(&*seen, SIGUSR1), 1);
  EXPECT_EQ(sigismember(&*seen, SIGUSR2), 0);
  const auto again = witness.seen(0);
  ASSERT_TRUE(again);
  EXPECT_EQ(sigismember(&*again, SIGUSR1), 0);  // told once
  ::kill(witness.pid(), SIGKILL);
  EXPECT_FALSE(witness.seen(0).has_value());
}

}  // namespace
}  // namespace bedplate::os
