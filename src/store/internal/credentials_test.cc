#include "store/internal/credentials.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "os/test_folder.h"
#include "store/internal/http_fault_server.h"

namespace bedplate::store {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

static_assert(!fmt::is_formattable<Secret>::value);

Deadline soon() { return Deadline::after(10 * kSecond); }

using Variables = std::map<std::string, std::string>;

// A user whose home is a fresh folder and whose environment is `variables`.
class CredentialsTest : public ::testing::Test {
 protected:
  CredentialsTest() {
    std::filesystem::create_directory(folder_.path() / ".aws");
    variables_["HOME"] = folder_.path();
  }

  Environment environment() const {
    return [variables = variables_](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path() / ".aws" / name) << text;
  }
  Credentials found() const { return CredentialChain({.environment = environment()}).get(soon()); }
  std::string message_of_none() const {
    try {
      return "found " + found().key_id;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kPermission);
      return error.what();
    }
  }

  const os::TestFolder folder_;
  Variables variables_;
};

TEST_F(CredentialsTest, TheEnvironmentComesFirst) {
  write("credentials", "[default]\naws_access_key_id=file\naws_secret_access_key=s\n");
  variables_["AWS_ACCESS_KEY_ID"] = "id";
  variables_["AWS_SECRET_ACCESS_KEY"] = "secret";
  variables_["AWS_SESSION_TOKEN"] = "token";
  const Credentials credentials = found();
  EXPECT_EQ(credentials.key_id, "id");
  EXPECT_EQ(credentials.secret_key.reveal(), "secret");
  EXPECT_EQ(credentials.session_token.reveal(), "token");
}

TEST_F(CredentialsTest, ThenTheSharedFile) {
  write("credentials",
        "# mine\n[other]\naws_access_key_id = wrong\n\n[ default ]\n  aws_access_key_id = id\n"
        "  AWS_SECRET_ACCESS_KEY = a=b/+\n  s3 =\n    aws_access_key_id = nested\n");
  const Credentials credentials = found();
  EXPECT_EQ(credentials.key_id, "id");
  EXPECT_EQ(credentials.secret_key.reveal(), "a=b/+");
  EXPECT_TRUE(credentials.session_token.empty());
}

TEST_F(CredentialsTest, ThenTheProfileInTheConfigFile) {
  variables_["AWS_PROFILE"] = "work";
  write("credentials", "[default]\naws_access_key_id=wrong\naws_secret_access_key=s\n");
  write("config",
        "[profile work]\naws_access_key_id=id\naws_secret_access_key=s\nregion = eu-west-1\n"
        "endpoint_url = http://10.0.0.1:9000\n[default]\nregion = us-west-2\n");
  EXPECT_EQ(found().key_id, "id");
  EXPECT_EQ(aws_settings(environment()).region, "eu-west-1");
  EXPECT_EQ(aws_settings(environment()).endpoint, "http://10.0.0.1:9000");
  variables_["AWS_REGION"] = "ap-south-1";
  variables_["AWS_ENDPOINT_URL"] = "http://general";
  variables_["AWS_ENDPOINT_URL_S3"] = "http://special";
  EXPECT_EQ(aws_settings(environment()).region, "ap-south-1");
  EXPECT_EQ(aws_settings(environment()).endpoint, "http://special");
}

TEST_F(CredentialsTest, FilesCanBeElsewhere) {
  write("elsewhere", "[default]\naws_access_key_id=id\naws_secret_access_key=s\n");
  variables_["AWS_SHARED_CREDENTIALS_FILE"] = "~/.aws/elsewhere";
  EXPECT_EQ(found().key_id, "id");
}

TEST_F(CredentialsTest, WhenThereAreNoneEachPlaceIsNamed) {
  variables_["AWS_ACCESS_KEY_ID"] = "half-of-it";
  write("config", "[default]\nrole_arn = arn:aws:iam::1:role/x\n");
  EXPECT_THAT(
      message_of_none(),
      AllOf(HasSubstr("AWS_SECRET_ACCESS_KEY is not"), HasSubstr("/.aws/credentials (it is"),
            HasSubstr("/.aws/config ([default] uses role_arn"),
            HasSubstr("BEDPLATE_S3_INSTANCE_PROFILE=1"), HasSubstr("BEDPLATE_S3_ANONYMOUS=1"),
            HasSubstr("Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
            HasSubstr("aws_secret_access_key under [default] in "), Not(HasSubstr("half-of-it"))));
}

TEST_F(CredentialsTest, ASwitchIsOnOffOrRefused) {
  EXPECT_FALSE(switched_on(environment(), kAnonymousVariable));
  variables_[kAnonymousVariable] = "0";
  EXPECT_FALSE(switched_on(environment(), kAnonymousVariable));
  variables_[kAnonymousVariable] = "1";
  EXPECT_TRUE(switched_on(environment(), kAnonymousVariable));
  variables_[kAnonymousVariable] = "yes";
  EXPECT_THROW(switched_on(environment(), kAnonymousVariable), Error);
}

TEST_F(CredentialsTest, AProfileThatIsMissingIsNamed) {
  variables_["AWS_PROFILE"] = "typo";
  write("credentials", "[default]\naws_access_key_id=id\naws_secret_access_key=s\n");
  EXPECT_THAT(message_of_none(), HasSubstr("(it has no [typo])"));
}

TEST_F(CredentialsTest, KeptUntilTheyAreForgotten) {
  write("credentials", "[default]\naws_access_key_id=old\naws_secret_access_key=s\n");
  CredentialChain chain({.environment = environment()});
  EXPECT_EQ(chain.get(soon()).key_id, "old");
  write("credentials", "[default]\naws_access_key_id=new\naws_secret_access_key=s\n");
  EXPECT_EQ(chain.get(soon()).key_id, "old");
  chain.forget();
  EXPECT_EQ(chain.get(soon()).key_id, "new");
}

// The metadata service of an instance, as far as it gives keys; each time others.
class FakeMetadata {
 public:
  FakeMetadata() {
    server_.handle([this](const HttpFaultServer::Request& request) { return answer(request); });
  }
  const HttpFaultServer& server() const { return server_; }

 private:
  HttpFaultServer::Reply answer(const HttpFaultServer::Request& request) {
    const std::string folder = "/latest/meta-data/iam/security-credentials/";
    if (request.path == "/latest/api/token") {
      const bool right = request.method == "PUT" &&
                         !header(request.headers, "x-aws-ec2-metadata-token-ttl-seconds").empty();
      return right ? HttpFaultServer::Reply{200, {}, "session"} : HttpFaultServer::Reply{400};
    }
    if (header(request.headers, "x-aws-ec2-metadata-token") != "session") return {401};
    if (request.path == folder) return {200, {}, "trainer\n"};
    if (request.path != folder + "trainer") return {404};
    ++given_;
    return {200,
            {},
            fmt::format(R"({{"Code": "Success", "AccessKeyId": "id{}",
        "SecretAccessKey": "secret", "Token": "token", "Expiration": "2026-01-02T03:{:02}:00Z"}})",
                        given_, 10 * given_)};
  }

  int given_ = 0;
  HttpFaultServer server_;
};

TEST_F(CredentialsTest, TheInstanceIsAskedWhenAllowedAndAgainBeforeItsKeysExpire) {
  FakeMetadata metadata;
  constexpr Nanos kThree = 1'767'322'800 * kSecond;  // 2026-01-02T03:00:00Z
  VirtualClock clock(0, kThree);
  CredentialChain chain({.environment = environment(),
                         .instance_profile = CredentialSources::InstanceProfile::kAllowed,
                         .metadata_url = metadata.server().url(),
                         .clock = &clock});
  const Credentials first = chain.get(soon());
  EXPECT_EQ(first.key_id, "id1");
  EXPECT_EQ(first.secret_key.reveal(), "secret");
  EXPECT_EQ(first.session_token.reveal(), "token");
  EXPECT_EQ(first.expires_at, kThree + 600 * kSecond);
  clock.advance(4 * 60 * kSecond);
  EXPECT_EQ(chain.get(soon()).key_id, "id1");
  clock.advance(60 * kSecond);  // five minutes are left
  EXPECT_EQ(chain.get(soon()).key_id, "id2");
  EXPECT_EQ(metadata.server().requests("/latest/api/token"), 2);
}

}  // namespace
}  // namespace bedplate::store
