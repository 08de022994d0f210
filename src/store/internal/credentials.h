// Where the keys to S3 come from. In this order:
//   1. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN;
//   2. ~/.aws/credentials, then ~/.aws/config (or the files that AWS_SHARED_CREDENTIALS_FILE and
//      AWS_CONFIG_FILE name), the profile AWS_PROFILE or "default";
//   3. the instance's role, from the metadata service (IMDSv2), if that is allowed.
//
//   CredentialChain chain(sources);
//   sign_v4({chain.get(deadline), region, now}, …);
//
// Keys are kept until shortly before they expire, or forget().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/patient_mutex.h"
#include "os/per_process.h"
#include "store/internal/http_client.h"

namespace bedplate::store {

// Text that is not printed by accident: neither a stream nor {fmt} takes it.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string text) : text_(std::move(text)) {}
  const std::string& reveal() const { return text_; }
  bool empty() const { return text_.empty(); }

 private:
  std::string text_;
};

struct Credentials {
  std::string key_id;
  Secret secret_key;
  Secret session_token;
  std::optional<Nanos> expires_at = {};  // wall time
};

// The value of an environment variable; nullopt when it is unset or empty.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

// Switches for who has no options to set: "1" for on, "0" for off.
constexpr char kAnonymousVariable[] = "BEDPLATE_S3_ANONYMOUS";
constexpr char kInstanceProfileVariable[] = "BEDPLATE_S3_INSTANCE_PROFILE";
// Off when it is not set. Error{kInvalid} for another value.
bool switched_on(const Environment& environment, const std::string& name);

struct CredentialSources {
  Environment environment = process_environment();
  enum class InstanceProfile { kRefused, kAllowed } instance_profile = InstanceProfile::kRefused;
  std::string metadata_url = "http://169.254.169.254";
  const Clock* clock = &real_clock();
};

class CredentialChain {
 public:
  explicit CredentialChain(CredentialSources sources) : sources_(std::move(sources)) {}

  // Throws Error{kPermission}, which names each place that was looked at, when there are none;
  // Error{kTimeout}. Thread-safe.
  Credentials get(Deadline deadline);
  // The server says that they are no longer good: the next get() looks anew.
  void forget();

 private:
  struct Kept {
    PatientMutex mutex;
    std::optional<Credentials> credentials;
  };
  Credentials look_up(Deadline deadline) const;

  const CredentialSources sources_;
  os::PerProcess<Kept> kept_;
};

// Region and endpoint as the environment (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION,
// AWS_DEFAULT_REGION) or the profile in ~/.aws/config says; empty: neither does.
struct AwsSettings {
  std::string region;
  std::string endpoint;
};
AwsSettings aws_settings(const Environment& environment);

}  // namespace bedplate::store
