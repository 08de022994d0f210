#include "host/internal/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/units.h"

namespace bedplate::host {
namespace {

// "NVIDIA" in "NVIDIA L40S", "AMD" in "AMD INSTINCT MI210".
bool names(std::string_view model, std::string_view vendor) { return model.starts_with(vendor); }

// "GiB" in "1.5 GiB", "x16" in "PCIe 5.0 x16".
bool clings(std::string_view word) {
  constexpr std::string_view kUnits[] = {"·",   "B",    "KiB",  "MiB", "GiB", "TiB",
                                         "PiB", "Gb/s", "Mb/s", "GHz", "CPUs"};
  while (!word.empty() && (word.back() == ',' || word.back() == ';')) word.remove_suffix(1);
  if (std::find(std::begin(kUnits), std::end(kUnits), word) != std::end(kUnits)) return true;
  return word.size() > 1 && word[0] == 'x' &&
         word.find_first_not_of("0123456789", 1) == std::string_view::npos;
}

bool has_digit_first(std::string_view word) {
  return !word.empty() && word[0] >= '0' && word[0] <= '9';
}

}  // namespace

std::string bytes_text(std::int64_t bytes) {
  return bytes == kUnlimited ? "unlimited" : human_bytes(static_cast<double>(bytes));
}

std::string bytes_or(const std::optional<std::int64_t>& bytes, std::string_view otherwise) {
  return bytes ? bytes_text(*bytes) : std::string(otherwise);
}

std::string or_na(const std::string& text) { return text.empty() ? "n/a" : text; }

std::string number_text(double value) {
  return value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

std::string speed_text(std::int64_t mbps) {
  if (mbps < 1000) return fmt::format("{} Mb/s", mbps);
  return number_text(static_cast<double>(mbps) / 1000) + " Gb/s";
}

std::string short_model(std::string_view model) {
  std::string text(model.substr(0, model.find(" @ ")));
  for (const std::string_view noise : {"(R)", "(TM)", "(tm)", " CPU", " Processor"}) {
    for (auto at = text.find(noise); at != std::string::npos; at = text.find(noise)) {
      text.erase(at, noise.size());
    }
  }
  const auto cores = text.rfind(' ');
  if (cores != std::string::npos && text.ends_with("-Core")) text.erase(cores);
  return text;
}

std::string gpu_title(const Gpu& gpu) {
  const std::string index =
      gpu.index >= 0 ? fmt::format("GPU{} ", gpu.index) : std::string("display ");
  if (gpu.model.empty())
    return fmt::format("{}{} device {}", index, gpu.vendor, or_na(gpu.pci.device_id));
  if (names(gpu.model, gpu.vendor)) return index + gpu.model;
  return fmt::format("{}{} {}", index, gpu.vendor, gpu.model);
}

std::string link_now(const PciDevice& device) {
  const std::string now = link_text(device.link.speed_gts, device.link.width);
  const PciLink best = best_link(device);
  const bool slower =
      device.link.speed_gts && best.speed_gts && *device.link.speed_gts < *best.speed_gts;
  const bool narrower = device.link.width && best.width && *device.link.width < *best.width;
  if (!slower && !narrower) return now;
  std::string could = link_text(best.speed_gts, best.width);
  if (could.starts_with("PCIe ")) could.erase(0, 5);
  return fmt::format("{}, of {}", now, could);
}

std::vector<std::string> unbreakable(std::string_view text) {
  std::vector<std::string> pieces;
  std::string_view previous;
  for (const auto word : split(text, ' ')) {
    const bool after_pcie = previous == "PCIe";  // "PCIe 5.0"
    const bool clung = word == "·" || (clings(word) && has_digit_first(previous)) || after_pcie;
    if (clung && !pieces.empty())
      pieces.back() += " " + std::string(word);
    else
      pieces.emplace_back(word);
    previous = word;
  }
  return pieces;
}

std::string shortened(std::string_view text, std::size_t columns) {
  if (display_width(text) <= columns) return std::string(text);
  if (columns == 0) return {};
  std::string cut;
  for (std::size_t i = 0, used = 0; i < text.size() && used + 1 < columns; ++used) {
    std::size_t next = i + 1;
    while (next < text.size() && (static_cast<unsigned char>(text[next]) & 0xC0) == 0x80) ++next;
    cut += text.substr(i, next - i);
    i = next;
  }
  return cut + "…";
}

bool is_volume(const Disk& disk) {
  return disk.kind == "device-mapper" || disk.kind == "raid" || disk.kind == "loop" ||
         disk.kind == "zram";
}

std::string isa_text(const Processors& cpu) {
  const auto has = [&](std::string_view name) {
    return std::find(cpu.isa.begin(), cpu.isa.end(), name) != cpu.isa.end();
  };
  std::vector<std::string> parts, details;
  if (has("avx512f")) {
    if (has("avx512_vnni")) details.emplace_back("VNNI");
    if (has("avx512_bf16")) details.emplace_back("BF16");
    if (has("avx512_fp16")) details.emplace_back("FP16");
    parts.push_back(details.empty() ? "AVX-512"
                                    : fmt::format("AVX-512 ({})", fmt::join(details, ", ")));
  } else if (has("avx2")) {
    parts.emplace_back(has("avx_vnni") ? "AVX2 (VNNI)" : "AVX2");
  }
  if (has("amx_tile")) parts.emplace_back("AMX");
  if (has("sve2"))
    parts.emplace_back("SVE2");
  else if (has("sve"))
    parts.emplace_back("SVE");
  else if (has("asimd"))
    parts.emplace_back("NEON");
  if (has("bf16")) parts.emplace_back("BF16");
  if (has("i8mm")) parts.emplace_back("I8MM");
  if (has("sme")) parts.emplace_back("SME");
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace bedplate::host
