// An object on its way into a bucket: one PUT if it is small, else a multipart upload, which holds
// one part in memory. See ObjectWriter; abandoned uploads are aborted.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "store/internal/s3_bucket.h"
#include "store/store.h"

namespace bedplate::store {

// Bytes of the part after `parts` others. 8 MiB at first; grows so that 5 TiB, the largest object,
// fit into 10,000 parts, and none is larger than 5 GiB (Amazon S3 User Guide, "Multipart upload
// limits").
constexpr std::int64_t part_size(std::int64_t parts) { return 8 * kMiB * (1 + parts / 64); }

// What find() does, where both the store and its writers need it.
std::optional<ObjectInfo> find_object(S3Bucket& bucket, std::string_view key, Deadline deadline);

// An ETag without its quotes: a listing may lack them.
std::string bare_etag(std::string_view etag);

class S3Writer : public ObjectWriter {
 public:
  // `bucket` is shared by the store and its writers.
  S3Writer(std::shared_ptr<S3Bucket> bucket, std::string_view key, IfExists if_exists,
           Nanos timeout);
  ~S3Writer() override;

  void write(std::span<const std::byte> bytes) override;
  ObjectInfo commit() override;

 private:
  void begin_upload(Deadline deadline);
  void send_part(Deadline deadline);
  ObjectInfo commit_small(Deadline deadline);
  ObjectInfo commit_parts(Deadline deadline);
  HttpAnswer send_last(S3Request request, std::string_view own_etag, Deadline deadline);
  ObjectInfo written(std::string_view etag, Deadline deadline) const;
  void refuse_if_it_exists(Deadline deadline) const;
  Error exists() const;

  const std::shared_ptr<S3Bucket> bucket_;
  const std::string key_;
  const IfExists if_exists_;
  const Nanos timeout_;
  const pid_t owner_;  // after fork() the upload stays the parent's
  std::vector<std::byte> buffer_;
  std::int64_t size_ = 0;
  std::string upload_id_;           // empty: none has begun, or it has come to its end
  std::vector<std::string> etags_;  // of the parts that were sent
};

}  // namespace bedplate::store
