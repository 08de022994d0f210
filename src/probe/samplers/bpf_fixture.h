// What the tests of the BPF samplers share: a job of children that wait until the sampler watches
// them.
//
//   class MyTest : public BpfJobTest {};
//   TEST_F(MyTest, …) {
//     own_group();                          // or not: then the set of processes decides
//     start([] { … });                      // in a child
//     OPEN_OR_SKIP(sampler, kBpfSched);     // skips with the reason where BPF cannot be had
//     reap();                               // lets the children go and waits for their end
//     sampler->sample(processes_, sink_);
//     EXPECT_GT(value("cgroup/job", "bpf.run_delay_ns"), 0);
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "probe/samplers/sampler_fixture.h"

namespace bedplate::probe {

// Numbers that children leave for their parent.
class Shared {
 public:
  Shared()
      : values_(static_cast<std::int64_t*>(
            ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    BEDPLATE_CHECK(values_ != MAP_FAILED);
  }
  ~Shared() { ::munmap(values_, 4096); }
  std::int64_t& operator[](int i) { return values_[i]; }

 private:
  std::int64_t* values_;
};

class BpfJobTest : public ::testing::Test {
 protected:
  // False where no v2 group can be made.
  bool own_group() {
    job_ = std::make_unique<os::JobCgroup>(host_, cgroups_, os::job_cgroup_name(host_));
    return job_->group("").has_value();
  }
  ~BpfJobTest() override { reap(); }

  // A child of the job that runs `body` once the sampler is there, and then waits for its end.
  pid_t start(const std::function<void()>& body) {
    int ends[2];
    BEDPLATE_CHECK(::pipe2(ends, O_CLOEXEC) == 0);
    const pid_t child = ::fork();
    BEDPLATE_CHECK(child >= 0);
    if (child == 0) {
      gates_.clear();  // those of the others, which would stay shut as long as this child lives
      if (job_) job_->enter(0);
      ::close(ends[1]);
      char byte;
      (void)!::read(ends[0], &byte, 1);
      body();
      ::_exit(0);
    }
    ::close(ends[0]);
    gates_.emplace_back(ends[1]);
    children_.push_back(child);
    processes_.push_back({.pid = child, .start = 0, .appeared = true});
    return child;
  }

  // The sampler, told of the processes; nullptr with a reason to skip where BPF cannot be had.
  std::unique_ptr<Sampler> open(const SamplerPart& part) {
    const SampleContext context{.host = host_,
                                .cgroups = cgroups_,
                                .job = job_.get(),
                                .root_pid = children_.empty() ? 0 : children_.front()};
    try {
      auto sampler = part.open(context);
      sampler->sample(processes_, sink_);
      return sampler;
    } catch (const Error& error) {
      reason_ = error.what();
      return nullptr;
    }
  }

  void go() { gates_.clear(); }
  void reap() {
    go();
    for (const pid_t child : children_) {
      int status = 0;
      ::waitpid(child, &status, 0);
    }
    children_.clear();
  }

  std::int64_t value(const std::string& subject, const std::string& metric) const {
    const auto it = sink_.values.find({subject, metric});
    return it == sink_.values.end() ? -1 : it->second.value;
  }

  os::HostRoot host_;
  os::CgroupTree cgroups_{host_};
  std::unique_ptr<os::JobCgroup> job_;
  std::vector<os::UniqueFd> gates_;
  std::vector<pid_t> children_;
  std::vector<JobProcess> processes_;
  RememberingSink sink_;
  std::string reason_;
};

#define OPEN_OR_SKIP(sampler, part) \
  auto sampler = open(part);        \
  if (!sampler) GTEST_SKIP() << reason_

}  // namespace bedplate::probe
