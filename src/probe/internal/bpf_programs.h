// The BPF programs of all signals, loaded once for the samplers of one job.
//
// They are one object, because libbpf reads the kernel's description of itself (5 MB of BTF) for
// each object that it loads. What the kernel refuses is left out, a signal at a time, with its
// reason, and the rest is loaded again: one refusal costs one signal. Programs and maps bear their
// signal's name in front ("sched_on_switch", "sched_sums").
//
// Threads: the samplers of one job are opened and read by one thread; jobs of different threads do
// not share.
#pragma once

#include <bpf/libbpf.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "probe/bpf/shared.h"
#include "probe/sampler.h"

namespace bedplate::probe {

class BpfPrograms {
 public:
  // Those already loaded for this job by this thread, while a sampler holds them; else loads them.
  // Throws Error{kPermission | kUnsupported} when no program can be loaded here.
  static std::shared_ptr<BpfPrograms> of_job(const SampleContext& context);

  explicit BpfPrograms(const bpf_job& job);

  // Throws the Error with which the kernel refused the signal's programs, if it did.
  void check(std::string_view signal) const;

  bpf_object* object() const { return object_.get(); }
  bool by_group() const { return job_.cgroup != 0; }

  // Tells the programs which processes are the job's, where it has no group of its own.
  void follow(std::span<const JobProcess> processes);

 private:
  struct Close {
    void operator()(bpf_object* object) const { bpf_object__close(object); }
  };
  void open();
  bool leave_out(int error);

  bpf_job job_;
  std::unique_ptr<bpf_object, Close> object_;
  std::map<std::string, Error, std::less<>>
      refused_;                          // by signal, or by the name of an optional program
  std::vector<std::uint32_t> followed_;  // ascending
};

}  // namespace bedplate::probe
