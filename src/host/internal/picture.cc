#include "host/internal/picture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "base/units.h"
#include "host/internal/words.h"

namespace bedplate::host {
namespace {

// Hands each mark to the subject that it names, once.
class MarkBook {
 public:
  explicit MarkBook(std::span<const Mark> marks) {
    for (const auto& mark : marks) left_.push_back(&mark);
  }

  void take(const std::string& subject, std::vector<const Mark*>& into) {
    const auto taken = std::stable_partition(
        left_.begin(), left_.end(), [&](const Mark* mark) { return mark->subject != subject; });
    into.insert(into.end(), taken, left_.end());
    left_.erase(taken, left_.end());
  }

  const std::vector<const Mark*>& left() const { return left_; }

 private:
  std::vector<const Mark*> left_;
};

// A device on its way to its place.
struct Item {
  PictureDevice device;
  const PciDevice* pci = nullptr;
  std::string joint;  // disks with the same text here may be drawn as one; "" never
};

std::string joined(const std::vector<std::string>& parts) {
  std::vector<std::string> some;
  std::copy_if(parts.begin(), parts.end(), std::back_inserter(some),
               [](const auto& part) { return !part.empty(); });
  return fmt::format("{}", fmt::join(some, " · "));
}

Item gpu_item(const Gpu& gpu, MarkBook& marks) {
  Item item{.device = {.kind = PictureDevice::Kind::kGpu}, .pci = &gpu.pci};
  item.device.title = gpu_title(gpu);
  item.device.detail = joined({gpu.memory_bytes ? bytes_text(*gpu.memory_bytes) : "",
                               link_now(gpu.pci), gpu.pci.driver.empty() ? "no driver" : ""});
  marks.take(fmt::format("gpu/{}", gpu.index), item.device.marks);
  return item;
}

std::string port_text(const RdmaPort& port) {
  const std::string layer = port.link_layer == "Ethernet" ? "RoCE" : port.link_layer;
  if (port.state != "ACTIVE") return joined({layer, or_na(port.state)});
  return layer + (port.rate_gbps ? fmt::format(" {} Gb/s", number_text(*port.rate_gbps)) : "");
}

std::string mtu_text(const Nic& nic) { return nic.mtu ? fmt::format("MTU {}", *nic.mtu) : ""; }

Item rdma_item(const RdmaDevice& rdma, const Host& host, MarkBook& marks) {
  Item item{.device = {.kind = PictureDevice::Kind::kNetwork}, .pci = &rdma.pci};
  item.device.title = rdma.name;
  if (!rdma.netdevs.empty())
    item.device.title += fmt::format(" ({})", fmt::join(rdma.netdevs, ", "));
  std::vector<std::string> parts;
  for (const auto& port : rdma.ports) parts.push_back(port_text(port));
  for (const auto& nic : host.nics) {
    if (nic.rdma == rdma.name) parts.push_back(mtu_text(nic));
  }
  parts.push_back(link_now(rdma.pci));
  item.device.detail = joined(parts);
  marks.take("rdma/" + rdma.name, item.device.marks);
  for (const auto& netdev : rdma.netdevs) marks.take("net/" + netdev, item.device.marks);
  return item;
}

Item nic_item(const Nic& nic, MarkBook& marks) {
  Item item{.device = {.kind = PictureDevice::Kind::kNetwork}, .pci = &nic.pci};
  item.device.title = nic.name;
  item.device.detail = joined({nic.pci.driver, nic.speed_mbps ? speed_text(*nic.speed_mbps) : "",
                               nic.state, mtu_text(nic), link_now(nic.pci)});
  marks.take("net/" + nic.name, item.device.marks);
  return item;
}

Item disk_item(const Disk& disk, MarkBook& marks) {
  Item item{.device = {.kind = PictureDevice::Kind::kDisk}, .pci = &disk.pci};
  item.device.title = disk.name;
  item.device.detail =
      joined({bytes_or(disk.bytes, ""), disk.model.empty() ? disk.kind : disk.model,
              disk.scheduler.empty() ? "" : "scheduler " + disk.scheduler,
              disk.read_ahead_kib ? fmt::format("read-ahead {} KiB", *disk.read_ahead_kib) : "",
              link_now(disk.pci)});
  marks.take("disk/" + disk.name, item.device.marks);
  if (item.device.marks.empty()) item.joint = item.device.detail;
  return item;
}

std::vector<Item> items_of(const Host& host, MarkBook& marks) {
  std::vector<Item> items;
  for (const auto& gpu : host.gpus) {
    if (gpu.compute) items.push_back(gpu_item(gpu, marks));
  }
  for (const auto& rdma : host.rdma) items.push_back(rdma_item(rdma, host, marks));
  for (const auto& nic : host.nics) {
    if (nic.physical && nic.rdma.empty()) items.push_back(nic_item(nic, marks));
  }
  for (const auto& disk : host.disks) {
    if (!is_volume(disk)) items.push_back(disk_item(disk, marks));
  }
  return items;
}

bool behind_one_switch(const Item& a, const Item& b) {
  const auto distance = pci_distance(*a.pci, *b.pci);
  return distance == PciDistance::kSameSwitch || distance == PciDistance::kSwitches;
}

// Groups by shared switch, GPUs' groups first; equal disks of a group become one line.
std::vector<PictureGroup> grouped(std::vector<Item> items) {
  std::vector<std::vector<Item>> clusters;
  for (auto& item : items) {
    const auto home = std::find_if(clusters.begin(), clusters.end(), [&](const auto& cluster) {
      return std::any_of(cluster.begin(), cluster.end(),
                         [&](const Item& other) { return behind_one_switch(item, other); });
    });
    if (home == clusters.end())
      clusters.emplace_back().push_back(std::move(item));
    else
      home->push_back(std::move(item));
  }
  std::vector<PictureGroup> groups;
  std::map<std::string, std::size_t> lone_disks;  // what they are → their group
  for (auto& cluster : clusters) {
    const std::string& joint = cluster.front().joint;
    if (cluster.size() == 1 && !joint.empty()) {
      const auto [known, fresh] = lone_disks.try_emplace(joint, groups.size());
      if (!fresh) {
        groups[known->second].devices[0].title += ", " + cluster.front().device.title;
        continue;
      }
    }
    PictureGroup& group = groups.emplace_back();
    for (auto& item : cluster) group.devices.push_back(std::move(item.device));
    std::stable_sort(group.devices.begin(), group.devices.end(),
                     [](const auto& a, const auto& b) { return a.kind < b.kind; });
  }
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return a.devices.front().kind < b.devices.front().kind;
  });
  return groups;
}

std::vector<int> intersection(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

struct CoreCount {
  int all = 0;  // 0: not told
  int allowed = 0;
};

CoreCount count_cores(const Host& host, const std::vector<int>& cpus) {
  std::set<int> cores, allowed;
  for (const auto& logical : host.cpu.logical) {
    if (!std::binary_search(cpus.begin(), cpus.end(), logical.id)) continue;
    if (logical.core < 0) return {};
    cores.insert(logical.core);
    if (host.cpu.allowed.empty() ||
        std::binary_search(host.cpu.allowed.begin(), host.cpu.allowed.end(), logical.id)) {
      allowed.insert(logical.core);
    }
  }
  return {.all = static_cast<int>(cores.size()), .allowed = static_cast<int>(allowed.size())};
}

std::string cache_name(const CacheKind& kind) {
  return fmt::format("L{}{} {}", kind.level,
                     kind.type == "data"          ? "d"
                     : kind.type == "instruction" ? "i"
                                                  : "",
                     bytes_text(kind.bytes));
}

void add_caches(const Host& host, const std::vector<int>& cpus, PictureNode& node) {
  int last_level = 0;
  for (const auto& kind : host.cpu.caches) last_level = std::max(last_level, kind.level);
  std::vector<std::string> inner;
  for (const auto& kind : host.cpu.caches) {
    int here = 0;
    for (const auto& sharers : kind.shared_by) {
      const auto common = intersection(sharers, cpus);
      if (common.empty()) continue;
      ++here;
      if (kind.level != last_level || kind.type == "instruction") continue;
      const auto cores = count_cores(host, common);
      node.domains.push_back({cache_name(kind), common, cores.all, cores.allowed});
    }
    if (here > 0 && kind.level != last_level && kind.type != "instruction") {
      inner.push_back(here == 1 ? cache_name(kind)
                                : fmt::format("{} × {}", here, cache_name(kind)));
    }
  }
  node.inner = fmt::format("{}", fmt::join(inner.rbegin(), inner.rend(), ", "));
  if (node.domains.empty() && !cpus.empty()) {
    const auto cores = count_cores(host, cpus);
    node.domains.push_back({"", cpus, cores.all, cores.allowed});
  }
}

std::string cpus_text(const Host& host, const std::vector<int>& cpus) {
  if (cpus.empty()) return {};
  const auto cores = count_cores(host, cpus);
  const std::string threads = fmt::format("{} thread{}", cpus.size(), cpus.size() == 1 ? "" : "s");
  if (cores.all == 0) return fmt::format("CPUs {}: {}", format_cpu_list(cpus), threads);
  return fmt::format("CPUs {}: {} core{}, {}", format_cpu_list(cpus), cores.all,
                     cores.all == 1 ? "" : "s", threads);
}

std::set<int> packages_of(const Host& host, const std::vector<int>& cpus) {
  std::set<int> packages;
  for (const auto& logical : host.cpu.logical) {
    if (logical.package >= 0 && std::binary_search(cpus.begin(), cpus.end(), logical.id)) {
      packages.insert(logical.package);
    }
  }
  return packages;
}

PictureNode picture_node(const Host& host, const NumaNode& node, MarkBook& marks) {
  PictureNode drawn;
  drawn.title = fmt::format("NUMA node {}", node.id);
  // With one node the machine's memory is the node's, and the line below says it better.
  if (node.memory_bytes && host.nodes.size() > 1) {
    drawn.title += " · " + bytes_text(*node.memory_bytes);
    if (node.free_bytes) drawn.title += fmt::format(", {} free", bytes_text(*node.free_bytes));
  }
  if (node.cpus.empty()) drawn.title += " · no processors";
  const auto online = intersection(node.cpus, host.cpu.online);
  drawn.cpus = cpus_text(host, online);
  const auto allowed = intersection(online, host.cpu.allowed);
  if (!host.cpu.allowed.empty() && allowed.size() < online.size()) {
    drawn.cpus +=
        allowed.empty() ? " · this process: none" : " · this process: " + format_cpu_list(allowed);
  }
  add_caches(host, online, drawn);
  marks.take(fmt::format("node/{}", node.id), drawn.marks);
  return drawn;
}

// Packages in order, each with the nodes that lie wholly in it; a package of one node needs no box
// of its own.
std::vector<PicturePackage> packages_with_nodes(const Host& host, MarkBook& marks,
                                                std::map<int, PictureNode*>& place) {
  std::vector<PicturePackage> packages;
  if (host.nodes.empty()) {
    PictureNode all{.title = "processors", .cpus = cpus_text(host, host.cpu.online)};
    add_caches(host, host.cpu.online, all);
    packages.push_back({.title = "", .nodes = {std::move(all)}});
    place[-1] = &packages[0].nodes[0];
    return packages;
  }
  std::map<int, std::vector<const NumaNode*>> in_package;
  std::vector<const NumaNode*> others;
  for (const auto& node : host.nodes) {
    const auto owners = packages_of(host, node.cpus);
    if (owners.size() == 1)
      in_package[*owners.begin()].push_back(&node);
    else
      others.push_back(&node);
  }
  std::vector<const NumaNode*> order;  // as drawn
  for (const auto& [id, nodes] : in_package) {
    PicturePackage package;
    for (const auto* node : nodes) {
      package.nodes.push_back(picture_node(host, *node, marks));
      order.push_back(node);
    }
    if (nodes.size() == 1)
      package.nodes[0].title = fmt::format("package {} · {}", id, package.nodes[0].title);
    else
      package.title = fmt::format("package {} · {} NUMA nodes", id, nodes.size());
    packages.push_back(std::move(package));
  }
  for (const auto* node : others) {
    PictureNode drawn = picture_node(host, *node, marks);
    const auto owners = packages_of(host, node->cpus);
    const std::vector<int> ids(owners.begin(), owners.end());
    if (!ids.empty())
      drawn.title = fmt::format("packages {} · {}", format_cpu_list(ids), drawn.title);
    packages.push_back({.title = "", .nodes = {std::move(drawn)}});
    order.push_back(node);
  }
  auto next = order.begin();
  for (auto& package : packages) {
    for (auto& node : package.nodes) place[(*next++)->id] = &node;
  }
  return packages;
}

std::string title_of(const System& system) {
  const std::string product = system.product.starts_with(system.vendor)
                                  ? system.product
                                  : joined({fmt::format("{} {}", system.vendor, system.product)});
  return joined(
      {system.hostname.empty() ? "this machine" : system.hostname, std::string(trim(product))});
}

std::string frequency_now(const Processors& cpu) {
  if (!cpu.current_mhz_lowest || !cpu.current_mhz_highest) return {};
  const std::string low = fmt::format("{:.2f}", *cpu.current_mhz_lowest / 1000);
  const std::string high = fmt::format("{:.2f}", *cpu.current_mhz_highest / 1000);
  return low == high ? fmt::format("now {} GHz", low) : fmt::format("now {}–{} GHz", low, high);
}

std::vector<std::string> headlines(const Host& host) {
  const Processors& cpu = host.cpu;
  std::vector<std::string> lines;
  const std::string model = cpu.model.empty() ? "processor model n/a" : short_model(cpu.model);
  std::string count =
      cpu.cores ? fmt::format("{} core{}, {} thread{}", *cpu.cores, *cpu.cores == 1 ? "" : "s",
                              cpu.threads, cpu.threads == 1 ? "" : "s")
                : fmt::format("{} thread{}", cpu.threads, cpu.threads == 1 ? "" : "s");
  lines.push_back(
      joined({cpu.packages.value_or(1) > 1 ? fmt::format("{} × {}", *cpu.packages, model) : model,
              count}));
  std::vector<std::string> governors;
  for (const auto& governor : cpu.governors) governors.push_back(governor.name);
  lines.push_back(joined(
      {isa_text(cpu), cpu.max_mhz ? fmt::format("up to {:.2f} GHz", *cpu.max_mhz / 1000) : "",
       frequency_now(cpu),
       governors.empty() ? "" : fmt::format("governor {}", fmt::join(governors, ", ")),
       cpu.offline.empty() ? "" : "offline: " + format_cpu_list(cpu.offline),
       cpu.isolated.empty() ? "" : "isolated: " + format_cpu_list(cpu.isolated)}));
  if (host.nodes.size() > 1) {
    std::map<int, int> distances;
    for (std::size_t i = 0; i < host.nodes.size(); ++i) {
      for (std::size_t j = 0; j < host.nodes[i].distances.size(); ++j) {
        if (i != j) ++distances[host.nodes[i].distances[j]];
      }
    }
    std::vector<std::string> parts;
    for (const auto& [distance, pairs] : distances) parts.push_back(fmt::format("{}", distance));
    if (!parts.empty())
      lines.push_back(
          fmt::format("distance between nodes {} (a node to itself: 10)", fmt::join(parts, ", ")));
  }
  std::erase(lines, "");
  return lines;
}

}  // namespace

std::vector<const Mark*> pointers(const std::vector<Mark>& marks) {
  std::vector<const Mark*> all;
  for (const auto& mark : marks) all.push_back(&mark);
  return all;
}

Picture arrange(const Host& host, std::span<const Mark> marks) {
  MarkBook book(marks);
  Picture picture;
  picture.title = title_of(host.system);
  picture.headlines = headlines(host);
  std::map<int, PictureNode*> place;
  picture.packages = packages_with_nodes(host, book, place);
  std::map<PictureNode*, std::vector<Item>> placed;
  std::vector<Item> unplaced;
  for (auto& item : items_of(host, book)) {
    const auto known = item.pci->numa_node ? place.find(*item.pci->numa_node) : place.end();
    if (known != place.end())
      placed[known->second].push_back(std::move(item));
    else if (place.size() == 1)
      placed[place.begin()->second].push_back(std::move(item));  // nowhere else to be
    else
      unplaced.push_back(std::move(item));
  }
  for (auto& [node, items] : placed) node->groups = grouped(std::move(items));
  picture.unplaced = grouped(std::move(unplaced));
  picture.facts = facts_of(host);
  for (const Mark* mark : book.left()) {
    const auto slash = mark->subject.find('/');  // "mount//data" → "/data", "disk/md1" → "md1"
    const std::string what =
        slash == std::string::npos ? mark->subject : mark->subject.substr(slash + 1);
    picture.unplaced_marks.push_back(
        {mark->subject, mark->level, what.empty() ? mark->text : what + ": " + mark->text});
  }
  return picture;
}

}  // namespace bedplate::host
