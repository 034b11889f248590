// Starts the ranks of a program, and starts all of them again when one dies:
//
//     lockstep_run -n 4 -- train_gpt --checkpoint-dir runs/a
//     lockstep_run --hosts hosts.txt -- train_gpt --checkpoint-dir /shared/runs/a
//
// docs/long-runs.md has the rest. Exit code: the program's own, 128 + signal for one that was
// killed, and for a run that was asked to stop and whose ranks did not all do so; 2 for options
// that make no sense; 127 for a program that cannot be started.

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep_run/agent.hpp"
#include "lockstep_run/hosts.hpp"
#include "lockstep_run/supervisor.hpp"
#include "support/command_line.hpp"

namespace {

struct Options {
  run::SupervisorOptions supervisor;
  std::string hosts, launcher = "ssh -o BatchMode=yes -o ConnectTimeout=10";
  std::int64_t host_wait = 600, probe = 10, grace = 0, stall_timeout = 0;
};

void add_options(CLI::App& app, Options& o) {
  run::SupervisorOptions& s = o.supervisor;
  app.add_option("-n,--ranks,--np", s.ranks,
                 "Ranks; by default as many as the hosts have slots; also -np N, as of mpirun")
      ->check(examples::whole_number(1, 1 << 20));
  app.add_option("--max-restarts", s.restarts.max_restarts, "Restarts in all")
      ->check(examples::whole_number(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--deaths-per-step", s.restarts.deaths_per_step,
                 "So many deaths of the same step, or exits with the same code before the first "
                 "one, end the run; 0: any number goes on")
      ->check(examples::whole_number(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--stall-timeout", o.stall_timeout,
                 "Seconds without a step after which ranks are started again: at least ten times "
                 "the longest step, and ten times as many in evaluations and the first steps; 0: "
                 "never")
      ->check(examples::whole_number(0, 1 << 24))
      ->capture_default_str();
  app.add_option("--grace", o.grace,
                 "Seconds that ranks have after SIGTERM or SIGUSR1; told to them as "
                 "LOCKSTEP_GRACE_TIME")
      ->check(examples::whole_number(1, 1 << 30));
  app.add_flag("--tag-output", s.tag_output, "\"[rank 3] \" before each line of a rank");
  app.add_option("--hosts", o.hosts, "File of hosts, one a line: NAME [slots=N] [address=ADDRESS]")
      ->check(CLI::ExistingFile);
  app.add_option("--launcher", o.launcher,
                 "Command that runs the words behind a host's name on that host")
      ->capture_default_str();
  app.add_option("--min-hosts", s.min_hosts, "With fewer the run waits")
      ->check(examples::whole_number(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--host-wait", o.host_wait, "Seconds that it waits for them")
      ->check(examples::whole_number(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--probe", o.probe,
                 "Seconds after which a lost host is tried again, doubled each time; 0: never")
      ->check(examples::whole_number(0, 1 << 20))
      ->capture_default_str();
  app.add_option("-x,--export", s.pass,
                 "NAME of a variable for ranks on other hosts, too, beside LOCKSTEP_... and "
                 "OMP_..., or NAME=VALUE for all ranks")
      ->allow_extra_args(false);
  app.prefix_command();
  app.footer("Behind the options: -- PROGRAM ARGUMENTS...");
}

template <class... T>
[[noreturn]] void refuse(const T&... parts) {
  LOCKSTEP_THROW(InvalidArgument, parts..., " (--help lists the options)");
}

/// What LOCKSTEP_STALL_REPORT says; a minute by default.
std::chrono::seconds stall_report() {
  const char* text = std::getenv("LOCKSTEP_STALL_REPORT");
  if (!text || !*text) return run::StepWatchOptions{}.report;
  return std::chrono::seconds(std::max(0, std::atoi(text)));  // ranks refuse what is no number
}

/// IPv4's, or IPv6's on a host that has no other.
std::string loopback_address() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int probe = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const bool is_there =
      probe >= 0 && ::bind(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (probe >= 0) ::close(probe);
  return is_there ? "127.0.0.1" : "::1";
}

/// What the command line means. @throws InvalidArgument
run::SupervisorOptions checked_options(CLI::App& app, Options& o) {
  run::SupervisorOptions& s = o.supervisor;
  s.command = app.remaining();
  if (!s.command.empty() && s.command[0] == "--") s.command.erase(s.command.begin());
  if (s.command.empty()) refuse("no program; give it behind the options: -- PROGRAM");
  if (s.command[0].starts_with('-')) refuse("unknown option ", s.command[0]);
  if (o.hosts.empty() && app.count("--ranks") == 0)
    refuse("how many ranks? give -n N, or --hosts FILE");
  std::vector<run::Host>& hosts = s.hosts.hosts;
  hosts = o.hosts.empty() ? std::vector<run::Host>{{"localhost", s.ranks, loopback_address()}}
                          : run::read_hosts(o.hosts);
  const int slots =
      std::accumulate(hosts.begin(), hosts.end(), 0,
                      [](int sum, const run::Host& host) { return sum + host.slots; });
  if (app.count("--ranks") == 0) s.ranks = slots;
  if (s.ranks > slots) refuse("-n ", s.ranks, " is more than the ", slots, " slots of the hosts");
  if (s.min_hosts > std::ssize(hosts))
    refuse("--min-hosts ", s.min_hosts, ", but there are ", hosts.size());
  for (const run::Host& host : hosts)
    if (hosts.size() > 1 && host.address == "localhost")
      refuse("the other hosts reach no localhost: give it address=ADDRESS");
  std::istringstream words(o.launcher);
  for (std::string word; words >> word;) s.hosts.launcher.push_back(word);
  if (s.hosts.launcher.empty()) refuse("--launcher is empty; give ssh");
  for (const std::string& name : s.pass)
    if (name.empty() || name[0] == '=')
      refuse("-x ", name, " names no variable");
    else if (name.find('=') == name.npos && !std::getenv(name.c_str()))
      std::cerr << "lockstep_run: -x " << name << ": there is no such variable here to pass\n";
  s.hosts.probe = std::chrono::seconds(o.probe);
  s.host_wait = std::chrono::seconds(o.host_wait);
  s.steps = {.report = stall_report(), .restart = std::chrono::seconds(o.stall_timeout)};
  if (o.grace > 0) s.grace = std::chrono::seconds(o.grace);
  return s;
}

/// The command line, back to front as the parser takes it, with --np for mpirun's -np: among the
/// options, and not behind the program.
std::vector<std::string> words_of(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  for (std::size_t i = 0; i < words.size() && words[i].starts_with('-') && words[i] != "--"; ++i) {
    if (words[i] == "-np") words[i] = "--np";
    const CLI::Option* option = app.get_option_no_throw(words[i]);
    if (option && option->get_items_expected_max() > 0) ++i;  // its value
  }
  std::ranges::reverse(words);
  return words;
}

/// Opens what is closed of the standard streams, whose numbers pipes would get.
void open_standard_streams() {
  int number = 0;
  do number = open("/dev/null", O_RDWR);
  while (number >= 0 && number <= STDERR_FILENO);
  if (number >= 0) close(number);
}

}  // namespace

int main(int argc, char** argv) try {
  open_standard_streams();
  if (argc == 3 && std::string_view(argv[1]) == "--agent")
    return run::Agent(0, 1, std::chrono::seconds(std::atoi(argv[2]))).run();
  Options options;
  CLI::App app("Starts the ranks of a program, and starts them again when one dies",
               "lockstep_run");
  add_options(app, options);
  try {
    app.parse(words_of(app, argc, argv));
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::ParseError& error) {
    refuse(error.what());
  }
  return run::Supervisor(checked_options(app, options)).run();
} catch (const lockstep::InvalidArgument& error) {
  std::cerr << "lockstep_run: " << error.what() << std::endl;
  return 2;
} catch (const std::exception& error) {
  std::cerr << "lockstep_run: " << error.what() << std::endl;
  return 1;
}
