// Samples of a WebDataset tar: neighbouring members whose names agree up to the first dot.
//
//   const auto index = scan_tar(store, info);        // one sequential read, checksums on the way
//   const std::string sidecar = index->sidecar();    // to keep beside the archive
//   auto again = open_tar_sidecar(sidecar, info);    // nullptr when it is of another archive
//
// A sample's extent reaches from its first member's header to its last member's content, so that
// one read brings all of it, and unpack() finds the members in it. 16 bytes of memory a sample.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/packed_index.h"
#include "data/scanned_index.h"
#include "store/store.h"

namespace bedplate::data {

constexpr std::string_view kTarSidecarMagic = "BPTARIX1";
using TarIndex = ScannedIndex;
constexpr std::string_view kTarSidecarSuffix = kSidecarSuffix;

// Error{kCorrupt} for what is no archive, a damaged one, or one whose end is missing (a copy that
// broke off), unless that is to be recovered: then what is whole is taken. kUnsupported for sparse
// members and for samples of 4 GiB or more.
std::shared_ptr<const TarIndex> scan_tar(store::Store& store, const store::ObjectInfo& info,
                                         CutOff cut_off = CutOff::kRefuse,
                                         Deadline deadline = Deadline::after(3600 * kSecond));

// The index as it was kept; nullptr when it is not of an archive of this size and version. Error
// {kCorrupt} when it is damaged.
std::shared_ptr<const TarIndex> open_tar_sidecar(std::string_view sidecar,
                                                 const store::ObjectInfo& info);

// By the sidecar beside the archive, which spares reading it whole; without one, or when it is of
// another archive, by a scan.
std::shared_ptr<const TarIndex> open_tar(store::Store& store, const store::ObjectInfo& info,
                                         CutOff cut_off, Deadline deadline);

}  // namespace bedplate::data
