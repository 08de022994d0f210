#include "host/host_json.h"

#include <concepts>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/error.h"
#include "base/text.h"

namespace bedplate::host {
namespace {

using Json = nlohmann::ordered_json;

// Each type's fields are listed once, for both directions: `a` is a Writer (T is const) or a
// Reader.
template <class T, class U>
concept Is = std::same_as<std::remove_const_t<T>, U>;

template <class A, Is<LogicalCpu> T>
void fields(A& a, T& v) {
  a("id", v.id), a("package", v.package), a("die", v.die), a("core", v.core), a("node", v.node);
}

template <class A, Is<Governor> T>
void fields(A& a, T& v) {
  a("name", v.name), a.cpus("cpus", v.cpus);
}

template <class A, Is<CacheKind> T>
void fields(A& a, T& v) {
  a("level", v.level), a("type", v.type), a("bytes", v.bytes),
      a.cpu_lists("shared_by", v.shared_by);
}

template <class A, Is<Processors> T>
void fields(A& a, T& v) {
  a("architecture", v.architecture), a("vendor", v.vendor), a("model", v.model);
  a("family", v.family), a("model_number", v.model_number), a("stepping", v.stepping);
  a("microcode", v.microcode), a("packages", v.packages), a("cores", v.cores);
  a("threads", v.threads), a("smt", v.smt);
  a.cpus("online", v.online), a.cpus("offline", v.offline), a.cpus("isolated", v.isolated);
  a.cpus("nohz_full", v.nohz_full), a.cpus("allowed", v.allowed);
  a("isa", v.isa), a("frequency_driver", v.frequency_driver), a("governors", v.governors);
  a("energy_preference", v.energy_preference), a("boost", v.boost), a("max_mhz", v.max_mhz);
  a("current_mhz_lowest", v.current_mhz_lowest);
  a("current_mhz_highest", v.current_mhz_highest);
  a("logical", v.logical), a("caches", v.caches);
}

template <class A, Is<NumaNode> T>
void fields(A& a, T& v) {
  a("id", v.id), a.cpus("cpus", v.cpus), a("memory_bytes", v.memory_bytes);
  a("free_bytes", v.free_bytes), a("distances", v.distances);
}

template <class A, Is<HugePages> T>
void fields(A& a, T& v) {
  a("page_bytes", v.page_bytes), a("total", v.total), a("free", v.free);
}

template <class A, Is<SwapArea> T>
void fields(A& a, T& v) {
  a("path", v.path), a("type", v.type), a("bytes", v.bytes), a("used_bytes", v.used_bytes);
  a("priority", v.priority), a("compressed_ram", v.compressed_ram);
}

template <class A, Is<Memory> T>
void fields(A& a, T& v) {
  a("total_bytes", v.total_bytes), a("available_bytes", v.available_bytes);
  a("free_bytes", v.free_bytes), a("swap_bytes", v.swap_bytes), a("swaps", v.swaps);
  a("zswap", v.zswap), a("swappiness", v.swappiness), a("huge_pages", v.huge_pages);
  a("thp", v.thp), a("thp_defrag", v.thp_defrag), a("thp_shmem", v.thp_shmem);
  a("overcommit", v.overcommit), a("numa_balancing", v.numa_balancing);
  a("zone_reclaim_mode", v.zone_reclaim_mode), a("min_free_bytes", v.min_free_bytes);
  a("max_map_count", v.max_map_count);
}

template <class A, Is<PciLink> T>
void fields(A& a, T& v) {
  a("speed_gts", v.speed_gts), a("width", v.width), a("max_speed_gts", v.max_speed_gts);
  a("max_width", v.max_width);
}

template <class A, Is<PciDevice> T>
void fields(A& a, T& v) {
  a("address", v.address), a("vendor_id", v.vendor_id), a("device_id", v.device_id);
  a("class_code", v.class_code), a("driver", v.driver), a("numa_node", v.numa_node);
  a("bridges", v.bridges), a.if_any("link", v.link), a("port", v.port);
  a.if_any("port_link", v.port_link);
}

template <class A, Is<Gpu> T>
void fields(A& a, T& v) {
  a("index", v.index), a("compute", v.compute), a("vendor", v.vendor), a("model", v.model);
  a("memory_bytes", v.memory_bytes), a("driver_version", v.driver_version), a("uuid", v.uuid);
  a.if_any("pci", v.pci);
}

template <class A, Is<Nic> T>
void fields(A& a, T& v) {
  a("name", v.name), a("kind", v.kind), a("physical", v.physical), a("state", v.state);
  a("speed_mbps", v.speed_mbps), a("duplex", v.duplex), a("mtu", v.mtu), a("bond", v.bond);
  a("rdma", v.rdma), a.if_any("pci", v.pci);
}

template <class A, Is<Gid> T>
void fields(A& a, T& v) {
  a("index", v.index), a("type", v.type), a("address", v.address), a("netdev", v.netdev);
}

template <class A, Is<RdmaPort> T>
void fields(A& a, T& v) {
  a("number", v.number), a("state", v.state), a("physical_state", v.physical_state);
  a("link_layer", v.link_layer), a("rate_gbps", v.rate_gbps), a("rate", v.rate), a("gids", v.gids);
}

template <class A, Is<RdmaDevice> T>
void fields(A& a, T& v) {
  a("name", v.name), a("model", v.model), a("firmware", v.firmware), a("netdevs", v.netdevs);
  a("ports", v.ports), a.if_any("pci", v.pci);
}

template <class A, Is<Disk> T>
void fields(A& a, T& v) {
  a("name", v.name), a("kind", v.kind), a("model", v.model), a("bytes", v.bytes);
  a("rotational", v.rotational), a("read_only", v.read_only), a("scheduler", v.scheduler);
  a("read_ahead_kib", v.read_ahead_kib), a("queue_requests", v.queue_requests);
  a("max_request_kib", v.max_request_kib), a("write_cache", v.write_cache), a("parts", v.parts);
  a.if_any("pci", v.pci);
}

template <class A, Is<Mount> T>
void fields(A& a, T& v) {
  a("point", v.point), a("type", v.type), a("kind", v.kind), a("source", v.source);
  a("options", v.options), a("disk", v.disk), a("bytes", v.bytes);
  a("available_bytes", v.available_bytes), a("inodes", v.inodes);
  a("available_inodes", v.available_inodes);
}

template <class A, Is<Limit> T>
void fields(A& a, T& v) {
  a.amount("soft", v.soft), a.amount("hard", v.hard);
}

template <class A, Is<Limits> T>
void fields(A& a, T& v) {
  a("open_files", v.open_files), a("locked_memory_bytes", v.locked_memory_bytes);
  a("processes", v.processes), a("stack_bytes", v.stack_bytes);
  a("may_lock_memory", v.may_lock_memory);
  a("system_open_files", v.system_open_files), a("system_threads", v.system_threads);
  a("system_pids", v.system_pids);
}

template <class A, Is<CgroupBounds> T>
void fields(A& a, T& v) {
  a("version", v.version), a("controllers", v.controllers), a("cpu_quota", v.cpu_quota);
  a("cpu_unlimited", v.cpu_unlimited), a("cpu_source", v.cpu_source);
  a.cpus("cpuset", v.cpuset), a("cpuset_source", v.cpuset_source);
  a.amount("memory_bytes", v.memory_bytes), a("memory_source", v.memory_source);
  a.amount("pids", v.pids), a("pids_source", v.pids_source);
}

template <class A, Is<System> T>
void fields(A& a, T& v) {
  a("hostname", v.hostname), a("os", v.os), a("kernel", v.kernel);
  a("boot_options", v.boot_options), a("clock_source", v.clock_source);
  a("clock_sources", v.clock_sources), a("vendor", v.vendor), a("product", v.product);
  a("hypervisor", v.hypervisor), a("container", v.container), a("hints", v.hints);
  a("psi", v.psi), a("btf", v.btf), a("nvidia_peermem", v.nvidia_peermem);
  a("perf_event_paranoid", v.perf_event_paranoid);
}

template <class A, Is<Unseen> T>
void fields(A& a, T& v) {
  a("what", v.what), a("why", v.why);
}

template <class A, Is<Host> T>
void fields(A& a, T& v) {
  a("schema", v.schema), a("system", v.system), a("cpu", v.cpu), a("nodes", v.nodes);
  a("memory", v.memory), a("gpus", v.gpus), a("nics", v.nics), a("rdma", v.rdma);
  a("disks", v.disks), a("mounts", v.mounts), a("limits", v.limits), a("cgroup", v.cgroup);
  a("unseen", v.unseen);
}

class Writer {
 public:
  template <class T>
  void operator()(const char* key, const T& value) {
    json_[key] = put(value);
  }

  void cpus(const char* key, const std::vector<int>& list) { json_[key] = format_cpu_list(list); }

  void cpu_lists(const char* key, const std::vector<std::vector<int>>& lists) {
    Json out = Json::array();
    for (const auto& list : lists) out.push_back(format_cpu_list(list));
    json_[key] = std::move(out);
  }

  void amount(const char* key, std::optional<std::int64_t> value) {
    if (value == kUnlimited)
      json_[key] = "unlimited";
    else
      (*this)(key, value);
  }

  // An aggregate of which nothing is known is null.
  template <class T>
  void if_any(const char* key, const T& value) {
    json_[key] = value == T{} ? Json(nullptr) : put(value);
  }

  Json take() { return std::move(json_); }

 private:
  template <class T>
  static Json put(const std::optional<T>& value) {
    return value ? put(*value) : Json(nullptr);
  }

  template <class T>
  static Json put(const std::vector<T>& values) {
    Json out = Json::array();
    for (const auto& value : values) out.push_back(put(value));
    return out;
  }

  template <class T>
  static Json put(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      return Json(value);
    } else {
      Writer inner;
      fields(inner, value);
      return inner.take();
    }
  }

  Json json_ = Json::object();
};

class Reader {
 public:
  Reader(const Json& json, std::string path) : json_(json), path_(std::move(path)) {
    if (!json_.is_object()) throw wrong(path_, "an object");
  }

  template <class T>
  void operator()(const char* key, T& value) {
    if (const Json* found = find(key)) take(*found, value, path_ + "." + key);
  }

  void cpus(const char* key, std::vector<int>& list) {
    if (const Json* found = find(key)) list = cpu_list(*found, path_ + "." + key);
  }

  void cpu_lists(const char* key, std::vector<std::vector<int>>& lists) {
    const Json* found = find(key);
    if (!found) return;
    if (!found->is_array()) throw wrong(path_ + "." + key, "an array");
    lists.clear();
    for (const auto& item : *found) lists.push_back(cpu_list(item, path_ + "." + key));
  }

  template <class T>
  void amount(const char* key, T& value) {
    const Json* found = find(key);
    if (!found) return;
    if (found->is_string() && found->get_ref<const std::string&>() == "unlimited")
      value = kUnlimited;
    else
      take(*found, value, path_ + "." + key);
  }

  template <class T>
  void if_any(const char* key, T& value) {
    if (const Json* found = find(key); found && !found->is_null())
      take(*found, value, path_ + "." + key);
  }

 private:
  static Error wrong(const std::string& path, std::string_view wanted) {
    return Error(Code::kCorrupt, "host description: {} is not {}", path, wanted);
  }

  const Json* find(const char* key) const {
    const auto it = json_.find(key);
    return it == json_.end() ? nullptr : &*it;
  }

  static std::vector<int> cpu_list(const Json& json, const std::string& path) {
    if (!json.is_string()) throw wrong(path, "a CPU list");
    const auto parsed = parse_cpu_list(json.get_ref<const std::string&>());
    if (!parsed) throw wrong(path, "a CPU list");
    return *parsed;
  }

  template <class T>
  static void take(const Json& json, std::optional<T>& value, const std::string& path) {
    value.reset();
    if (!json.is_null()) take(json, value.emplace(), path);
  }

  template <class T>
  static void take(const Json& json, std::vector<T>& values, const std::string& path) {
    if (!json.is_array()) throw wrong(path, "an array");
    values.clear();
    for (const auto& item : json) take(item, values.emplace_back(), path);
  }

  template <class T>
  static void take(const Json& json, T& value, const std::string& path) {
    if constexpr (std::is_same_v<T, bool>) {
      if (!json.is_boolean()) throw wrong(path, "true or false");
      value = json.get<bool>();
    } else if constexpr (std::is_integral_v<T>) {
      if (!json.is_number_integer()) throw wrong(path, "a whole number");
      value = json.get<T>();
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!json.is_number()) throw wrong(path, "a number");
      value = json.get<T>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!json.is_string()) throw wrong(path, "a text");
      value = json.get<std::string>();
    } else {
      Reader inner(json, path);
      fields(inner, value);
    }
  }

  const Json& json_;
  std::string path_;
};

}  // namespace

std::string to_json(const Host& host) {
  Writer writer;
  fields(writer, host);
  return writer.take().dump(2);
}

Host from_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) throw Error(Code::kCorrupt, "host description: not JSON");
  Host host;
  Reader reader(json, "host");
  reader("schema", host.schema);
  if (host.schema > kHostSchema) {
    throw Error(
        Code::kUnsupported,
        "host description: schema {} is newer than {}, which this bedplate knows; update it",
        host.schema, kHostSchema);
  }
  fields(reader, host);
  return host;
}

}  // namespace bedplate::host
