#include "probe/internal/job_groups.h"

#include <algorithm>

#include "base/error.h"

namespace bedplate::probe {
namespace {

constexpr std::size_t kProcessesAtATime = 16;

bool holds(const std::vector<os::Cgroup>& groups, const os::Cgroup& group) {
  return std::ranges::any_of(groups,
                             [&](const os::Cgroup& other) { return other.folder == group.folder; });
}

}  // namespace

os::Cgroup own_group(const SampleContext& context, std::string_view controller) {
  if (context.job != nullptr) {
    if (auto group = context.job->group(controller)) return *group;
  }
  if (context.root_pid > 0) {
    const auto group =
        context.cgroups.of_process(context.host, std::to_string(context.root_pid), controller);
    const auto ours = context.cgroups.of_process(context.host, "self", controller);
    // Without a look at our own group nothing says that the job's holds no others.
    if (group && ours && group->folder != ours->folder) return *group;
  }
  if (context.job != nullptr && !context.job->refused().empty()) {
    const os::JobCgroup::Refused& refused = context.job->refused().front();
    const bool permission = refused.why.find("not permitted") != std::string::npos;
    throw Error(permission ? Code::kPermission : Code::kUnsupported,
                "the job has no control group of its own: {}: {}", refused.hierarchy, refused.why);
  }
  throw Error(Code::kUnsupported, "the job has no control group of its own on this machine");
}

GoverningGroups::GoverningGroups(const SampleContext& context, std::string controller)
    : host_(context.host), tree_(context.cgroups), controller_(std::move(controller)) {
  if (!tree_.has(controller_)) {
    throw Error(Code::kUnsupported, "no control group hierarchy here has the controller `{}`",
                controller_);
  }
  const std::string pid = context.root_pid > 0 ? std::to_string(context.root_pid) : "self";
  auto group = tree_.of_process(host_, pid, controller_);
  if (!group) group = tree_.of_process(host_, "self", controller_);
  if (!group) {
    throw Error(Code::kUnsupported,
                "the job's `{}` group lies outside of what is mounted here (a container's view)",
                controller_);
  }
  leaves_.push_back(*group);
  rebuild();
}

void GoverningGroups::refresh(std::span<const JobProcess> processes) {
  std::erase_if(leaves_, [this](const os::Cgroup& leaf) {
    return leaves_.size() > 1 && !host_.exists(leaf.folder);
  });
  const std::size_t count = std::min(processes.size(), kProcessesAtATime);
  for (std::size_t i = 0; i < count; ++i) {
    const JobProcess& process = processes[(next_ + i) % processes.size()];
    const auto group = tree_.of_process(host_, std::to_string(process.pid), controller_);
    if (group && !holds(leaves_, *group)) leaves_.push_back(*group);
  }
  next_ = processes.empty() ? 0 : (next_ + count) % processes.size();
  rebuild();
}

void GoverningGroups::rebuild() {
  groups_.clear();
  for (const os::Cgroup& leaf : leaves_) {
    for (os::Cgroup& group : tree_.chain(leaf)) {
      if (!holds(groups_, group)) groups_.push_back(std::move(group));
    }
  }
}

}  // namespace bedplate::probe
