// JobCgroup on this machine's own kernel; what it lacks is named by the skipped test.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "os/cgroup.h"

namespace bedplate::os {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

// A child process that lives until it is ended.
class Sleeper {
 public:
  explicit Sleeper(const std::function<void()>& first) {
    int ready[2];
    BEDPLATE_CHECK(::pipe(ready) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      first();
      ::close(ready[0]);
      [[maybe_unused]] const auto n = ::write(ready[1], "x", 1);
      for (;;) ::pause();
    }
    char byte = 0;
    BEDPLATE_CHECK(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Sleeper() { end(); }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

// Runs `body` in a child with mounts of its own; gives its exit code.
int in_own_mounts(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::unshare(CLONE_NEWNS) != 0) ::_exit(100);
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) ::_exit(101);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class JobCgroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (JobCgroup(host_, tree_, own_name()).members() == std::nullopt) {
      GTEST_SKIP() << "needs a cgroup hierarchy in which this user may make groups";
    }
  }
  // Names of this test's groups that exist now, in every hierarchy where it could make one.
  std::vector<std::string> left(std::string_view name) const {
    std::vector<std::string> found;
    for (const auto* controller : {"", "cpuacct", "memory"}) {
      const auto parent = tree_.of_process(host_, "self", controller);
      if (parent && host_.exists(parent->file(name))) found.push_back(parent->file(name));
    }
    return found;
  }
  // Tests run at the same time, and each clears leftovers: so each has a prefix of its own.
  static std::string prefix() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    return fmt::format("bedplate-test.{}", test->name());
  }
  std::string own_name() const {
    return prefix() + job_cgroup_name(host_).substr(kJobCgroupPrefix.size());
  }

  HostRoot host_;
  CgroupTree tree_{host_};
};

TEST_F(JobCgroupTest, HoldsTheProcessesThatEnteredAndTheirChildren) {
  const auto name = own_name();
  {
    JobCgroup job(host_, tree_, name);
    EXPECT_THAT(job.members().value(), IsEmpty());
    int pipe_fds[2];
    ASSERT_EQ(::pipe(pipe_fds), 0);
    Sleeper parent([&] {
      job.enter(0);
      const pid_t child = ::fork();
      if (child == 0) {
        for (;;) ::pause();
      }
      [[maybe_unused]] const auto n = ::write(pipe_fds[1], &child, sizeof child);
    });
    pid_t grandchild = 0;
    ASSERT_EQ(::read(pipe_fds[0], &grandchild, sizeof grandchild), ssize_t{sizeof grandchild});
    ::close(pipe_fds[0]);
    ::close(pipe_fds[1]);
    EXPECT_THAT(job.members().value(), ElementsAre(std::min(parent.pid(), grandchild),
                                                   std::max(parent.pid(), grandchild)));
    job.hide(grandchild);
    EXPECT_THAT(job.members().value(), ElementsAre(parent.pid()));
    ::kill(grandchild, SIGKILL);
    parent.end();
  }
  EXPECT_THAT(left(name), IsEmpty());
}

TEST_F(JobCgroupTest, CountsAloneAndNeverTouchesShares) {
  const JobCgroup job(host_, tree_, own_name());
  for (const auto* controller : {"cpu", "cpuset", "blkio", "pids", "freezer", "devices"}) {
    EXPECT_EQ(job.group(controller), std::nullopt) << controller;
  }
  if (const auto unified = job.group("")) {
    EXPECT_EQ(host_.read_line(unified->file("cgroup.controllers")).value_or("").find("cpu"),
              std::string::npos);
  }
}

TEST_F(JobCgroupTest, SeesTheGroupsOfARunInsideTheRun) {
  JobCgroup outer(host_, tree_, own_name());
  int up[2];
  ASSERT_EQ(::pipe(up), 0);
  Sleeper inner_run([&] {
    outer.enter(0);
    const CgroupTree tree(host_);
    auto* inner = new JobCgroup(host_, tree, own_name());  // ends with the process
    const pid_t job = ::fork();
    if (job == 0) {
      inner->enter(0);
      [[maybe_unused]] const auto n = ::write(up[1], "x", 1);
      for (;;) ::pause();
    }
    [[maybe_unused]] const auto n = ::write(up[1], &job, sizeof job);
  });
  char bytes[1 + sizeof(pid_t)];
  for (std::size_t used = 0; used < sizeof bytes;) {
    const auto n = ::read(up[0], bytes + used, sizeof bytes - used);
    ASSERT_GT(n, 0);
    used += static_cast<std::size_t>(n);
  }
  ::close(up[0]);
  ::close(up[1]);
  const auto members = outer.members().value();
  EXPECT_THAT(members, Contains(inner_run.pid()));
  EXPECT_EQ(members.size(), 2u);
  for (const auto pid : members) ::kill(pid, SIGKILL);
  inner_run.end();
}

TEST_F(JobCgroupTest, LeftoversOfADeadRunAreClearedAndOthersKept) {
  // A process that makes its groups and is killed, as `bedplate run` by kill -9.
  std::string dead;
  {
    Sleeper run([&] { new JobCgroup(host_, tree_, own_name()); });
    dead = fmt::format("{}.{}", prefix(), run.pid());
    EXPECT_EQ(JobCgroup::clear_leftovers(host_, tree_, prefix()), 0);  // it still lives
  }
  const auto mine = own_name();
  const JobCgroup job(host_, tree_, mine);
  const auto here = left(mine).size();
  EXPECT_GE(here, 1u);
  EXPECT_EQ(JobCgroup::clear_leftovers(host_, tree_, prefix()), static_cast<int>(here));
  EXPECT_EQ(left(mine).size(), here);
  for (const auto* controller : {"", "cpuacct", "memory"}) {
    const auto parent = tree_.of_process(host_, "self", controller);
    if (!parent) continue;
    for (const auto& name : host_.list(parent->folder)) EXPECT_FALSE(name.starts_with(dead + "."));
  }
}

TEST_F(JobCgroupTest, AGroupThatIsStillLivedInOutlivesItsOwner) {
  const auto name = prefix() + ".4194303.1";  // a pid that is never given out
  auto job = std::make_unique<JobCgroup>(host_, tree_, name);
  Sleeper daemon([&] { job->enter(0); });
  job.reset();
  EXPECT_THAT(left(name), Not(IsEmpty()));
  EXPECT_EQ(JobCgroup::clear_leftovers(host_, tree_, prefix()), 0);
  daemon.end();
  EXPECT_GE(JobCgroup::clear_leftovers(host_, tree_, prefix()), 1);
  EXPECT_THAT(left(name), IsEmpty());
}

TEST_F(JobCgroupTest, ReadOnlyMountsAreRefusedWithTheReason) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to mount";
  const int code = in_own_mounts([&] {
    for (const auto& hierarchy : tree_.hierarchies()) {
      const auto* path = hierarchy.mount.c_str();
      if (::mount(path, path, nullptr, MS_BIND, nullptr) != 0) return 1;
      if (::mount(nullptr, path, nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0) return 2;
    }
    const CgroupTree tree(host_);
    const JobCgroup job(host_, tree, "bedplate.run.1.1");
    if (job.members() || job.refused().empty()) return 3;
    for (const auto& refused : job.refused()) {
      if (refused.why != "read-only file system") return 4;
    }
    return 0;
  });
  if (code >= 100) GTEST_SKIP() << "needs mount namespaces";
  EXPECT_EQ(code, 0);
}

TEST_F(JobCgroupTest, AnAbsentTreeGivesNoGroupAndNoComplaint) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to mount";
  const int code = in_own_mounts([&] {
    if (::mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, nullptr) != 0) return 1;
    const CgroupTree tree(host_);
    if (!tree.hierarchies().empty()) return 2;
    JobCgroup job(host_, tree, "bedplate.run.1.1");
    job.enter(0);
    return job.members() ? 3 : 0;
  });
  if (code >= 100) GTEST_SKIP() << "needs mount namespaces";
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace bedplate::os
