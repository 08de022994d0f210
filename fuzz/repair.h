// Makes the checksums of damaged bytes right again, so that what lies behind them is reached.
#pragma once

#include <string>

namespace bedplate::fuzz {

void repair_packed(std::string& shard);
void repair_tar(std::string& archive);
void repair_tfrecord(std::string& file);
// A tar's or TFRecord's sidecar, and a manifest or listing: their heads have the checksum in the
// same place.
void repair_sidecar_or_table(std::string& bytes);

}  // namespace bedplate::fuzz
