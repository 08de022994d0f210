#include "probe/internal/pressure.h"

namespace bedplate::probe {

PressureFiles::PressureFiles(const os::HostRoot& host, std::string subject, const Paths& paths)
    : subject_(std::move(subject)) {
  files_.push_back({TickFile(host, paths.cpu), "psi.cpu.some_us", "psi.cpu.full_us", {}, {}});
  files_.push_back(
      {TickFile(host, paths.memory), "psi.memory.some_us", "psi.memory.full_us", {}, {}});
  files_.push_back({TickFile(host, paths.io), "psi.io.some_us", "psi.io.full_us", {}, {}});
  for (One& one : files_) any_ = any_ || one.file.read().has_value();
}

void PressureFiles::sample(SampleSink& sink) {
  constexpr std::string_view kTotal = "total=";
  for (One& one : files_) {
    const auto text = one.file.read();
    if (!text) continue;
    for (Lines lines(*text); auto line = lines.next();) {
      Words words(*line);
      const std::string_view kind = words.next();
      for (std::string_view word = words.next(); !word.empty(); word = words.next()) {
        if (!word.starts_with(kTotal)) continue;
        const auto us = natural(word.substr(kTotal.size()));
        if (!us) continue;
        if (kind == "some") {
          sink.counter(subject_, one.some_metric, one.some.update(*us, Rising::Fall::kNoise),
                       one.file.path());
        } else if (kind == "full") {
          sink.counter(subject_, one.full_metric, one.full.update(*us, Rising::Fall::kNoise),
                       one.file.path());
        }
      }
    }
  }
}

}  // namespace bedplate::probe
