// Network interfaces and TCP of this network namespace, from /proc/net. A job in a namespace of its
// own (a container that the command starts) is not seen here.
#include <array>
#include <string>
#include <unordered_map>

#include "base/error.h"
#include "probe/internal/sampling.h"

namespace bedplate::probe {
namespace {

struct Column {
  std::size_t field;  // after "name:", from 0
  std::string_view metric;
};
constexpr std::array<Column, 8> kColumns = {{{0, "rx_bytes"},
                                             {1, "rx_packets"},
                                             {2, "rx_errors"},
                                             {3, "rx_drops"},
                                             {8, "tx_bytes"},
                                             {9, "tx_packets"},
                                             {10, "tx_errors"},
                                             {11, "tx_drops"}}};
constexpr std::size_t kFields = 16;
constexpr int kSpeedEvery = 20;  // samples: a link's speed changes when it is plugged

class HostNet final : public Sampler {
 public:
  explicit HostNet(const SampleContext& context)
      : host_(context.host),
        dev_(required(context.host, "/proc/net/dev",
                      "/proc/net/dev is absent: this kernel has no network")),
        snmp_(context.host, "/proc/net/snmp"),
        netstat_(context.host, "/proc/net/netstat") {}

  void sample(std::span<const JobProcess>, SampleSink& sink) override {
    if (const auto text = dev_.read()) {
      for (Lines lines(*text); auto line = lines.next();) interface(*line, sink);
    }
    if (const auto text = snmp_.read()) {
      protocol(*text, "Tcp:", "OutSegs", "tcp.out_segs", out_segs_, snmp_.path(), sink);
      protocol(*text, "Tcp:", "RetransSegs", "tcp.retrans_segs", retrans_segs_, snmp_.path(), sink);
    }
    if (const auto text = netstat_.read()) {
      protocol(*text, "TcpExt:", "TCPTimeouts", "tcp.timeouts", timeouts_, netstat_.path(), sink);
    }
    ++tick_;
  }

 private:
  struct Interface {
    std::string subject;
    bool in_use = false;
    int ask_speed_at = 0;
    std::array<Rising, kColumns.size()> counters;
  };

  void interface(std::string_view line, SampleSink& sink) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;  // the two lines of headings
    const std::string name(Words(line.substr(0, colon)).next());
    if (name.empty()) return;
    Words words(line.substr(colon + 1));
    std::array<std::optional<std::int64_t>, kFields> fields;
    for (auto& field : fields) field = natural(words.next());

    auto [it, fresh] = interfaces_.try_emplace(name);
    Interface& known = it->second;
    if (fresh) known.subject = "net/" + name;
    known.in_use = known.in_use || fields[1].value_or(0) > 0 || fields[9].value_or(0) > 0;
    if (!known.in_use) return;
    for (std::size_t i = 0; i < kColumns.size(); ++i) {
      const auto& raw = fields[kColumns[i].field];
      if (raw)
        sink.counter(known.subject, kColumns[i].metric,
                     known.counters[i].update(*raw, Rising::Fall::kReplaced), dev_.path());
    }
    if (tick_ >= known.ask_speed_at) {
      known.ask_speed_at = tick_ + kSpeedEvery;
      const std::string path = "/sys/class/net/" + name + "/speed";
      const auto speed =
          host_.read_int(path);  // -1, or an error of the read, where a link has no speed
      if (speed && *speed > 0) sink.gauge(known.subject, "speed_mbps", *speed, path);
    }
  }

  // Two lines a protocol: "Tcp: names…", "Tcp: values…". Values are found by name, since kernels
  // add columns.
  static void protocol(std::string_view text, std::string_view prefix, std::string_view name,
                       std::string_view metric, Rising& counter, std::string_view source,
                       SampleSink& sink) {
    std::optional<std::string_view> names;
    for (Lines lines(text); auto line = lines.next();) {
      if (!line->starts_with(prefix)) continue;
      if (!names) {
        names = line;
        continue;
      }
      Words keys(*names), values(*line);
      for (auto key = keys.next(); !key.empty(); key = keys.next()) {
        const auto value = natural(values.next());
        if (key == name && value)
          sink.counter("host", metric, counter.update(*value, Rising::Fall::kNoise), source);
      }
      return;
    }
  }

  const os::HostRoot& host_;
  TickFile dev_, snmp_, netstat_;
  int tick_ = 0;
  std::unordered_map<std::string, Interface> interfaces_;
  Rising out_segs_, retrans_segs_, timeouts_;
};

}  // namespace

extern const SamplerPart kHostNet = {
    .name = "host.net",
    .what =
        "bytes, packets, drops and errors of each network interface; TCP retransmits and timeouts",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<HostNet>(context);
    },
};

}  // namespace bedplate::probe
