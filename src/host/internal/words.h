// Figures of a Host as people read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/host.h"

namespace bedplate::host {

std::string bytes_text(std::int64_t bytes);  // "1.5 GiB", "unlimited"
std::string bytes_or(const std::optional<std::int64_t>& bytes, std::string_view otherwise);
std::string or_na(const std::string& text);  // the text, "n/a" when empty
std::string number_text(double value);       // "2.5", "16"
std::string speed_text(std::int64_t mbps);   // "400 Gb/s", "100 Mb/s"

// "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz" → "Intel Xeon Platinum 8375C"
std::string short_model(std::string_view model);

// "GPU0 NVIDIA H100 80GB HBM3"
std::string gpu_title(const Gpu& gpu);

// "PCIe 4.0 x8, of 4.0 x16": what the link runs at and, when it is less, what it could; "" when
// nothing is known.
std::string link_now(const PciDevice& device);

// Made of other disks, of a file or of memory: no device of its own.
bool is_volume(const Disk& disk);

// "AVX-512 (VNNI, BF16), AMX": what the widest kernels may use.
std::string isa_text(const Processors& cpu);

// The pieces between spaces at which a line may be broken: a figure keeps its unit, a link its
// width, and no line starts with "·". Several spaces in a row give empty pieces.
std::vector<std::string> unbreakable(std::string_view text);

// At most `columns` of it, the last of them "…" when something was cut.
std::string shortened(std::string_view text, std::size_t columns);

}  // namespace bedplate::host
