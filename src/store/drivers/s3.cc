#include <algorithm>
#include <atomic>
#include <pugixml.hpp>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "store/driver.h"
#include "store/internal/remote_reads.h"
#include "store/internal/s3_bucket.h"
#include "store/internal/s3_writer.h"

namespace bedplate::store {
namespace {

struct ListPage {
  std::vector<ObjectInfo> objects;
  std::string next;  // empty: it was the last
};

// ListBucketResult; Amazon S3 API Reference, "ListObjectsV2".
ListPage parse_page(const std::string& xml, std::string_view what) {
  const auto corrupt = [&](std::string_view why) {
    return Error(Code::kCorrupt, "{}: {}", what, why);
  };
  pugi::xml_document document;
  // Without encoding a key may be a single space.
  constexpr unsigned kOptions = pugi::parse_default | pugi::parse_ws_pcdata_single;
  if (!document.load_buffer(xml.data(), xml.size(), kOptions))
    throw corrupt("the answer is no XML");
  const pugi::xml_node list = document.child("ListBucketResult");
  if (!list) throw corrupt("the answer is no list of objects");
  const bool encoded = std::string_view(list.child_value("EncodingType")) == "url";
  ListPage page;
  for (const pugi::xml_node entry : list.children("Contents")) {
    const char* name = entry.child_value("Key");
    auto key = encoded ? form_decode(name) : std::optional<std::string>(name);
    const auto size = to_int(trim(entry.child_value("Size")));
    if (!key || key->empty() || !size) throw corrupt("an object in the list lacks key or size");
    if (key->ends_with('/')) continue;  // stands for a folder
    page.objects.push_back({*std::move(key), *size, bare_etag(trim(entry.child_value("ETag")))});
  }
  if (trim(list.child_value("IsTruncated")) != "true") return page;
  page.next = list.child_value("NextContinuationToken");
  if (page.next.empty()) throw corrupt("the list goes on, and it is not said where");
  return page;
}

class S3Store : public Store {
 public:
  S3Store(std::string_view bucket, const StoreOptions& options)
      : bucket_(std::make_shared<S3Bucket>(bucket, options)) {}

  std::string url() const override { return bucket_->url(); }

  std::optional<ObjectInfo> find(std::string_view key, Deadline deadline) override {
    check_key(key);
    auto found = find_object(*bucket_, key, deadline);
    if (!found && !bucket_seen_) check_bucket(key, deadline);
    bucket_seen_ = true;
    return found;
  }

  void read(std::span<Read> reads, Deadline deadline) override {
    read_remotely<S3Request>(
        reads,
        {.request = [this](const Read& one) { return read_request(one); },
         .http = [](S3Request& request) -> HttpRequest& { return request.http; },
         .perform = [&](std::span<S3Request> requests) { bucket_->perform(requests, deadline); },
         .version =
             [](const HttpAnswer& answer) { return bare_etag(header(answer.headers, "etag")); }});
  }

  // Gathered before it is visited: some servers list by folder, where "a/b" comes before "a-b".
  void list(std::string_view prefix, const Visit& visit, Deadline deadline) override {
    std::vector<ObjectInfo> objects;
    std::string token;
    do {
      S3Request request = bucket_->request(HttpMethod::kGet, {}, "cannot list");
      request.query = {{"list-type", "2"}, {"encoding-type", "url"}};
      if (!prefix.empty()) request.query.emplace_back("prefix", prefix);
      if (!token.empty()) request.query.emplace_back("continuation-token", token);
      request.http.most_text = 64 * kMiB;
      const HttpAnswer answer = bucket_->perform_one(request, deadline);
      ListPage page = parse_page(answer.text, request.http.what);
      if (!page.next.empty() && page.next == token) {
        throw Error(Code::kCorrupt, "{}: the list goes on for ever with the same page",
                    request.http.what);
      }
      token = std::move(page.next);
      std::ranges::move(page.objects, std::back_inserter(objects));
    } while (!token.empty());
    bucket_seen_ = true;
    std::erase_if(objects, [&](const ObjectInfo& o) { return !o.key.starts_with(prefix); });
    std::ranges::sort(objects, {}, &ObjectInfo::key);
    for (const ObjectInfo& object : objects) visit(object);
  }

  std::unique_ptr<ObjectWriter> create(std::string_view key, IfExists if_exists,
                                       Nanos timeout) override {
    check_key(key);
    return std::make_unique<S3Writer>(bucket_, key, if_exists, timeout);
  }

  void remove(std::string_view key, Deadline deadline) override {
    check_key(key);
    S3Request request = bucket_->request(HttpMethod::kDelete, key, "cannot remove");
    request.http.expected = {200, 204};
    bucket_->perform({&request, 1}, deadline);
    const HttpAnswer& answer = request.http.answer;
    const bool was_not_there =
        answer.status == 404 && parse_s3_error(answer.text).code != "NoSuchBucket";
    if (request.http.error && !was_not_there) throw *request.http.error;
  }

 private:
  // An answer to HEAD has no body, and so does not tell a missing bucket from a missing object.
  void check_bucket(std::string_view key, Deadline deadline) {
    S3Request request = bucket_->request(HttpMethod::kGet, key, "cannot look up");
    request.http.headers = {{"Range", "bytes=0-0"}};
    request.http.expected = {200, 206};
    request.http.take = HttpRequest::Take::kHeaders;
    bucket_->perform({&request, 1}, deadline);
    const int status = request.http.answer.status;
    const bool bucket_is_missing =
        status == 404 && parse_s3_error(request.http.answer.text).code == "NoSuchBucket";
    if (bucket_is_missing) throw *request.http.error;
  }

  S3Request read_request(const Read& one) const {
    check_key(one.key);
    S3Request request = bucket_->request(HttpMethod::kGet, one.key, "cannot read");
    if (!one.version.empty())
      request.http.headers.push_back({"If-Match", fmt::format("\"{}\"", one.version)});
    return request;
  }

  const std::shared_ptr<S3Bucket> bucket_;  // shared with the writers
  std::atomic<bool> bucket_seen_{false};
};

Driver::Opened open_s3(const Url& url, const StoreOptions& options) {
  return {std::make_shared<S3Store>(url.authority, options), url.path};
}

constexpr std::string_view kSchemes[] = {"s3"};

}  // namespace

extern const Driver kS3 = {
    .name = "s3",
    .schemes = kSchemes,
    .summary = "objects in a bucket of Amazon S3 or any server that speaks its language",
    .open = open_s3,
};

}  // namespace bedplate::store
