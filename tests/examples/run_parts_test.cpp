#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "lockstep_run/generation.hpp"
#include "lockstep_run/host_link.hpp"
#include "lockstep_run/hosts.hpp"
#include "lockstep_run/launch_plan.hpp"
#include "lockstep_run/listener.hpp"
#include "lockstep_run/message.hpp"
#include "lockstep_run/output.hpp"
#include "lockstep_run/rank_process.hpp"
#include "lockstep_run/restart_policy.hpp"
#include "lockstep_run/step_watch.hpp"
#include "support/temporary_folder.hpp"

// The parts of lockstep_run, without processes.

namespace run {
namespace {

using lockstep::testing::TemporaryFolder;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RestartPolicy, StartsAgainAtOnceAfterNewGroundAndEverLaterWithout) {
  RestartPolicy policy({.max_restarts = 100, .deaths_per_step = 0});
  EXPECT_EQ(policy.after_death(5).delay, seconds(0));
  EXPECT_EQ(policy.after_death(4).delay, seconds(1));
  EXPECT_EQ(policy.after_death(std::nullopt).delay, seconds(2));
  EXPECT_EQ(policy.after_death(5).delay, seconds(4));
  EXPECT_EQ(policy.after_death(6).delay, seconds(0));
  for (int i = 0; i < 40; ++i) policy.after_death(6);
  EXPECT_EQ(policy.after_death(6).delay, seconds(60));
}

TEST(RestartPolicy, EndsWhenTheSameStepDiesTwice) {
  RestartPolicy policy({});
  EXPECT_EQ(policy.after_death(34).refusal, "");
  EXPECT_EQ(policy.after_death(20).refusal, "");  // on the way there
  EXPECT_THAT(policy.after_death(34).refusal, HasSubstr("behind step 34 died 2 times"));
  RestartPolicy other({.deaths_per_step = 3});
  EXPECT_EQ(other.after_death(34).refusal, "");
  EXPECT_EQ(other.after_death(34).refusal, "");
  EXPECT_NE(other.after_death(34).refusal, "");
}

TEST(RestartPolicy, BlamesNoStepForALostHost) {
  RestartPolicy policy({});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(policy.after_death(34, true).refusal, "");
  EXPECT_EQ(policy.after_death(40, true).delay, seconds(0));  // new ground
}

TEST(RestartPolicy, ForgetsADeadlyStepThatWasPassed) {
  RestartPolicy policy({});
  policy.after_death(34);
  EXPECT_EQ(policy.after_death(40).refusal, "");
  EXPECT_EQ(policy.after_death(34).refusal, "");
}

TEST(RestartPolicy, KnowsNoStepOfProgramsThatTellNone) {
  RestartPolicy policy({.max_restarts = 3});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(policy.after_death(std::nullopt).refusal, "");
  EXPECT_THAT(policy.after_death(std::nullopt).refusal, HasSubstr("started again 3 times"));
  EXPECT_EQ(policy.restarts(), 3);
}

TEST(RestartPolicy, EndsWhenAProgramThatMadeNoStepExitsTwiceAlike) {
  RestartPolicy policy({});
  EXPECT_EQ(policy.after_early_exit(1).refusal, "");
  EXPECT_EQ(policy.after_death(std::nullopt).refusal, "");  // of a signal: says nothing of it
  EXPECT_EQ(policy.after_early_exit(3).refusal, "");
  EXPECT_THAT(policy.after_early_exit(3).refusal,
              HasSubstr("code 3 before its first step, 2 times"));
  RestartPolicy in_turns({});  // ranks that fail alike, with a code each
  EXPECT_EQ(in_turns.after_early_exit(4).refusal, "");
  EXPECT_EQ(in_turns.after_early_exit(3).refusal, "");
  EXPECT_NE(in_turns.after_early_exit(4).refusal, "");
  RestartPolicy any({.deaths_per_step = 0});
  for (int i = 0; i < 5; ++i) EXPECT_EQ(any.after_early_exit(1).refusal, "");
}

/// What looks every second.
class StepWatching : public ::testing::Test {
 protected:
  using Finding = StepWatch::Finding;
  /// For so many seconds. @return after how many each thing was found.
  std::vector<std::pair<int, Finding>> look(int count, std::int64_t step, bool is_long = false) {
    std::vector<std::pair<int, Finding>> found;
    for (int second = 0; second < count; ++second, now += seconds(1)) {
      const Finding finding = watch.look(step, is_long, now);
      if (finding != Finding::none) found.emplace_back(second, finding);
      if (finding == Finding::restart) break;
    }
    return found;
  }
  StepWatch watch{{.report = seconds(60), .restart = seconds(90)}};
  StepWatch::Clock::time_point now = StepWatch::Clock::now();
};

TEST_F(StepWatching, FindsThatNoStepComesAndReportsItOnce) {
  look(5, 0);
  look(5, 1);
  using Found = std::pair<int, Finding>;
  EXPECT_THAT(look(1000, 2), ElementsAre(Found(60, Finding::report), Found(90, Finding::restart)));
  watch.begin();
  look(5, 1);
  EXPECT_THAT(look(60, 2), ElementsAre());
  EXPECT_THAT(look(60, 3), ElementsAre());
}

TEST_F(StepWatching, GivesFirstStepsAndEvaluationsTenTimesAsLong) {
  EXPECT_THAT(look(500, -1), ElementsAre());  // it may tell of none, ever
  EXPECT_THAT(look(599, 0), ElementsAre());   // in the first
  EXPECT_THAT(look(59, 1), ElementsAre());
  EXPECT_THAT(look(599, 1, true), ElementsAre());
  EXPECT_THAT(look(59, 1), ElementsAre());
  EXPECT_THAT(look(599, 1, true), ElementsAre());
  EXPECT_THAT(look(59, 2), ElementsAre());
  EXPECT_EQ(look(601, 2, true).size(), 1u);  // in the end that is too long, too
}

TEST_F(StepWatching, GivesAStepTenTimesAsLongAsTheLongest) {
  for (int step = 0; step < 3; ++step) EXPECT_THAT(look(50, step), ElementsAre());
  EXPECT_THAT(look(499, 3), ElementsAre());
}

TEST_F(StepWatching, DoesNotCountTheTimeInWhichItDidNotLook) {
  look(2, 1);
  look(2, 2);
  now += seconds(1000);
  EXPECT_THAT(look(50, 2), ElementsAre());
}

constexpr int exited(int code) { return code << 8; }

TEST(Generation, NamesTheRankThatDiedFirst) {
  Generation generation(1, {"a", "b"}, {1, 2});
  EXPECT_EQ(generation.first_rank_of(1), 1);
  EXPECT_FALSE(generation.has_made_steps());
  generation.note_progress(2, {.step = 7, .first = 3, .saved = 5});
  EXPECT_EQ(generation.first_step(), 3);
  EXPECT_EQ(generation.saved_step(), 5);
  EXPECT_TRUE(generation.has_made_steps());
  generation.note_end(2, 9, {.step = 8});
  generation.note_end(0, exited(1), {.step = 8});
  EXPECT_FALSE(generation.is_over());
  EXPECT_FALSE(generation.is_running_on(0));
  generation.note_end(1, 9, {.step = 8});
  EXPECT_TRUE(generation.is_over());
  ASSERT_TRUE(generation.death());
  EXPECT_EQ(generation.death()->what, "rank 2 on b was killed by SIGKILL behind step 8");
  EXPECT_EQ(generation.death()->exit_code, 137);
  EXPECT_FALSE(generation.death()->is_exit);
  EXPECT_EQ(generation.death()->step, 8);
}

TEST(Generation, TellsStopsRefusalsAndLostHosts) {
  Generation stopped(1, {"localhost"}, {2});
  stopped.note_end(0, exited(75), {.step = 3});
  stopped.note_end(1, exited(75), {.step = 3});
  EXPECT_FALSE(stopped.death());
  EXPECT_EQ(stopped.exit_code(), 75);
  Generation refused(1, {"localhost"}, {1});
  refused.note_end(0, exited(2), {});
  EXPECT_TRUE(refused.death()->is_refusal);
  EXPECT_TRUE(refused.death()->is_exit);
  EXPECT_EQ(refused.death()->step, std::nullopt);
  Generation lost(1, {"a", "b"}, {1, 1});
  lost.note_end(0, exited(0), {.step = 5});
  lost.note_lost_host(0, "its agent has ended");  // nothing ran there any more
  EXPECT_FALSE(lost.death());
  lost.note_progress(1, {.step = 4});
  lost.note_lost_host(1, "its agent has ended");
  EXPECT_TRUE(lost.death()->is_of_the_host);
  EXPECT_EQ(lost.death()->step, 4);
  EXPECT_EQ(lost.death()->what, "host b was lost: its agent has ended");
  EXPECT_TRUE(lost.is_over());
}

TEST(Hosts, AreReadFromLines) {
  const TemporaryFolder folder;
  const auto hosts =
      read_hosts(folder.write("hosts", "# all\na slots=2\n\n  b address=10.0.0.2 # no slots\nc\n"));
  ASSERT_EQ(hosts.size(), 3u);
  EXPECT_EQ(hosts[0].slots, 2);
  EXPECT_EQ(hosts[0].address, "a");
  EXPECT_EQ(hosts[1].address, "10.0.0.2");
  EXPECT_EQ(hosts[1].slots, 1);
  EXPECT_THAT(deal_ranks(hosts, 3), ElementsAre(2, 1, 0));
  EXPECT_THAT(deal_ranks(hosts, 9), ElementsAre(2, 1, 1));
}

TEST(Hosts, AreReachedByRanksWithoutTheUserOfALogin) {
  const TemporaryFolder folder;
  const auto hosts = read_hosts(folder.write("hosts", "\xef\xbb\xbfme@node1\n"));
  EXPECT_EQ(hosts.at(0).name, "me@node1") << "behind what some editors begin a file with";
  EXPECT_EQ(hosts.at(0).address, "node1");
}

TEST(Hosts, ThatMakeNoSenseAreNamedByLine) {
  const TemporaryFolder folder;
  for (const auto& [text, what] : std::vector<std::pair<std::string, std::string>>{
           {"a\nb slots=0", ":2: 'slots=0' is neither"},
           {"a 4", ":1: '4' is neither"},
           {"a\na", ":2: a is there twice"},
           {"-oProxyCommand=x", ":1: '-oProxyCommand=x' is no name of a host"},
           {"# none", "names no host"}})
    try {
      read_hosts(folder.write("hosts", text));
      ADD_FAILURE() << text;
    } catch (const lockstep::InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(what));
    }
}

// ssh gives its words, put together with spaces, to a shell.
TEST(HostLink, QuotesThePathOfTheAgentForSsh) {
  const std::vector<std::string> ssh{"/usr/bin/ssh", "-q"}, other{"sh", "run.sh"};
  EXPECT_THAT(agent_command(ssh, "a", "/bin/run"),
              ElementsAre("/usr/bin/ssh", "-q", "a", "/bin/run", "--agent", "30"));
  EXPECT_EQ(agent_command(ssh, "a", "/x y'z/$run").at(3), "'/x y'\\''z/$run'");
  EXPECT_EQ(agent_command(other, "a", "/x y'z/$run").at(3), "/x y'z/$run");
  EXPECT_THAT(agent_command({}, "localhost", "/x y/run"), ElementsAre("/x y/run", "--agent", "0"));
}

TEST(Messages, ComeInPiecesBehindWhateverALoginShellPrints) {
  const std::string bytes = "Welcome to a\n" + std::string(agent_handshake) + "\n" +
                            encode({MessageType::ended, {3, -1}}) +
                            encode({MessageType::output, {0, 2}, "a\nb : 7\n"});
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, bytes.size()}) {
    MessageReader reader(agent_handshake);
    std::vector<Message> all;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      reader.add(std::string_view(bytes).substr(at, piece));
      while (const auto message = reader.next()) all.push_back(*message);
    }
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].type, MessageType::ended);
    EXPECT_THAT(all[0].numbers, ElementsAre(3, -1));
    EXPECT_EQ(all[1].text, "a\nb : 7\n");
  }
}

TEST(Messages, ThatAreNoneAreRefused) {
  for (const std::string noise : {"hello\n", "7 1 2\n", "7 : -5\n", "7 : 99999999999\n"}) {
    MessageReader reader;
    reader.add(noise);
    EXPECT_THROW(reader.next(), lockstep::CorruptData) << noise;
  }
}

/// Where a socket listens.
std::string address_of(const Listener& listener) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  getsockname(listener.socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return inet_ntoa(address.sin_addr);
}

TEST(Listener, IsAtAnAddressOfItsOwnAloneAndElseOnAllInterfaces) {
  EXPECT_EQ(address_of(listen_on("127.0.0.1")), "127.0.0.1");
  const Listener elsewhere = listen_on("192.0.2.1");  // of documents (RFC 5737), and no host's
  EXPECT_EQ(address_of(elsewhere), "0.0.0.0");
  EXPECT_FALSE(elsewhere.is_own_address);
  EXPECT_GT(port_of(elsewhere.socket), 0);
  EXPECT_THROW(listen_on("no such name"), lockstep::Error);
}

TEST(LaunchPlan, SurvivesItsTextWithSpacesAndEmptyWords) {
  const LaunchPlan plan{"/a b", {"p", "", "x y\n"}, {"A=1", "B="}};
  const LaunchPlan other = LaunchPlan::parse(plan.to_text());
  EXPECT_EQ(other.folder, plan.folder);
  EXPECT_EQ(other.command, plan.command);
  EXPECT_EQ(other.environment, plan.environment);
  EXPECT_THROW(LaunchPlan::parse("x"), lockstep::CorruptData);
}

TEST(LaunchPlan, PassesEachVariableOnce) {
  ::setenv("LOCKSTEP_GRACE_TIME", "600", 1);
  ::setenv("RUN_PARTS_TEST", "here", 1);
  std::vector<std::string> variables{"LOCKSTEP_GRACE_TIME=20"};
  pass_variables(variables, {"RUN_PARTS_TEST", "OTHER=a=b", "LOCKSTEP_GRACE_TIME=9"});
  ::unsetenv("LOCKSTEP_GRACE_TIME");
  ::unsetenv("RUN_PARTS_TEST");
  const auto count = [&](const char* variable) { return std::ranges::count(variables, variable); };
  EXPECT_EQ(count("LOCKSTEP_GRACE_TIME=20"), 1);
  EXPECT_EQ(count("RUN_PARTS_TEST=here"), 1);
  EXPECT_EQ(count("OTHER=a=b"), 1);
  EXPECT_EQ(std::ranges::count_if(
                variables,
                [](const std::string& each) { return each.starts_with("LOCKSTEP_GRACE_TIME="); }),
            1);
}

TEST(Output, KeepsLinesWholeAndTagsThem) {
  LineBuffer lines;
  EXPECT_EQ(lines.add("ab"), "");
  EXPECT_EQ(lines.add("c\nd"), "abc\n");
  EXPECT_EQ(lines.add("50 %\r"), "d50 %\r");
  EXPECT_EQ(lines.add("end"), "");
  EXPECT_EQ(lines.rest(), "end\n");
  EXPECT_EQ(lines.rest(), "");
  EXPECT_EQ(tagged(3, "a\nb\n"), "[rank 3] a\n[rank 3] b\n");
}

}  // namespace
}  // namespace run
