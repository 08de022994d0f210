#include "probe/internal/cgroup_usage.h"

#include "base/error.h"
#include "probe/internal/job_groups.h"

namespace bedplate::probe {

CgroupUsage::CgroupUsage(const os::HostRoot& host, const os::Cgroup& group)
    : unified_(group.unified) {
  if (unified_) {
    usage_ = required(host, group.file("cpu.stat"),
                      "this kernel keeps no cpu.stat for control groups (Linux 4.15 and newer)");
    if (!keyed(usage_.read().value_or(""), "usage_usec")) {
      throw Error(Code::kUnsupported, "{} has no usage_usec", usage_.path());
    }
    return;
  }
  usage_ =
      required(host, group.file("cpuacct.usage"), "the job's cpuacct group has no cpuacct.usage");
  user_ = TickFile(host, group.file("cpuacct.usage_user"));
  system_ = TickFile(host, group.file("cpuacct.usage_sys"));
}

std::optional<CgroupUsage::Reading> CgroupUsage::read() {
  const auto text = usage_.read();
  if (!text) return std::nullopt;
  if (unified_) {
    const auto usage = times(keyed(*text, "usage_usec"), kMicrosecond);
    if (!usage) return std::nullopt;
    return Reading{*usage, times(keyed(*text, "user_usec"), kMicrosecond),
                   times(keyed(*text, "system_usec"), kMicrosecond)};
  }
  const auto whole = [](TickFile& file) -> std::optional<Nanos> {
    const auto number = file.read();
    return number ? natural(Words(*number).next()) : std::nullopt;
  };
  const auto usage = whole(usage_);
  if (!usage) return std::nullopt;
  return Reading{*usage, whole(user_), whole(system_)};
}

os::Cgroup own_cpu_group(const SampleContext& context) {
  if (context.job != nullptr) {
    if (auto group = context.job->group("cpuacct")) return *group;
    if (auto group = context.job->group("")) return *group;
  }
  return own_group(context, "cpuacct");
}

}  // namespace bedplate::probe
