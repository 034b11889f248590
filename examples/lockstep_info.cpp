// Says what this build of lockstep and this machine have, for bug reports:
//
//     build/bin/lockstep_info
//     mpirun -np 2 build/bin/lockstep_info --json

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <lockstep/lockstep.hpp>
#include <lockstep/runtime/device_runtime.hpp>
#include <lockstep/version.hpp>
#include <nlohmann/json.hpp>
#include <sched.h>
#include <unistd.h>

#include "support/command_line.hpp"

namespace ls = lockstep;
using Json = nlohmann::ordered_json;

namespace {

constexpr double gibibyte = 1024.0 * 1024.0 * 1024.0;

/// Bytes in GiB, two digits.
std::string gibibytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f GiB", bytes / gibibyte);
  return text;
}

Json build() {
  Json result;
  result["lockstep"] = ls::version;
#if defined(__clang__)
  result["compiler"] = "Clang " __clang_version__;
#else
  result["compiler"] = "GCC " __VERSION__;
#endif
#if defined(NDEBUG)
  result["assertions"] = "off";
#else
  result["assertions"] = "on";
#endif
  for (const auto& components : {ls::backend::components(), ls::runtime_components(),
                                 ls::comm::components(), ls::io::components()})
    for (const auto& [name, version] : components) result[name] = version;
  return result;
}

Json backends() {
  Json cpu = Json::array();
  for (const auto name : ls::backend::cpu_backends()) cpu.push_back(name);
  Json ranks = Json::array({"self", "thread", "shm", "tcp", "hier"});
  for (const auto& component : ls::comm::components())
    ranks.push_back(component.name == "MPI" ? "mpi" : "nccl");
  return {{"ops on the CPU", cpu},
          {"ops on a GPU", ls::runtime_components().empty() ? "none in this build" : "cuda"},
          {"communicators", ranks}};
}

/// The processors that this process may run on, as ranges: "0-3,8".
std::string affinity() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return "unknown";
  std::string text;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask)) continue;
    int last = cpu;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &mask)) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(cpu);
    if (last > cpu) text += "-" + std::to_string(last);
    cpu = last;
  }
  return text;
}

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

Json processor() {
  const auto instructions = ls::backend::cpu_instructions();
  Json result{{"model", cpu_model()},
              {"processors", sysconf(_SC_NPROCESSORS_ONLN)},
              {"extensions", instructions.machine},
              {"kernels compiled for", instructions.compiled},
              {"kernels in use", instructions.used},
              {"memory", gibibytes(static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                                   static_cast<double>(sysconf(_SC_PAGE_SIZE)))}};
  for (const auto& [dtype, how] : ls::backend::cpu_half_precision()) result[dtype] = how;
  return result;
}

Json gpus() {
  Json result = Json::array();
  for (int i = 0; i < ls::cuda_device_count(); ++i) {
    auto& runtime = ls::device_runtime(ls::DeviceType::cuda);
    const auto [free, total] = runtime.memory_info(i);
    result.push_back(runtime.device_name(i) + ", " + gibibytes(static_cast<double>(free)) +
                     " free of " + gibibytes(static_cast<double>(total)));
  }
  return result;
}

Json process() {
  std::error_code missing;
  const auto shared = std::filesystem::space("/dev/shm", missing);
  const std::string launcher = ls::comm::launcher_name();
  const char* open_mp = std::getenv("OMP_NUM_THREADS");
  return {{"launcher", launcher.empty() ? "none" : launcher},
          {"threads", ls::num_threads()},
          {"OMP_NUM_THREADS", open_mp ? open_mp : "not set"},
          {"/dev/shm", missing ? "missing"
                               : gibibytes(static_cast<double>(shared.available)) + " free of " +
                                     gibibytes(static_cast<double>(shared.capacity))}};
}

/// Which processors each rank of the job may run on, and its host. Every rank must call it.
Json bindings() {
  Json result = Json::object();
  try {
    const ls::Session session(0, nullptr, {.device = "cpu"});
    const auto processors = session.bootstrap().all_gather_bytes(affinity(), "affinity masks");
    for (std::size_t rank = 0; rank < processors.size(); ++rank)
      result["rank " + std::to_string(rank)] = "bound to processors " + processors[rank] + " of " +
                                               session.bootstrap().peers()[rank].host;
  } catch (const ls::Error& error) {
    result["the ranks did not meet"] = error.what();  // worth reporting too
  }
  return result;
}

/// One line a value, lists with commas between.
std::string as_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const Json& part : value) text += (text.empty() ? "" : ", ") + as_text(part);
  return text.empty() ? "none" : text;
}

void print(const Json& report) {
  for (const auto& [section, values] : report.items()) {
    std::cout << section << "\n";
    for (const auto& [name, value] : values.items())
      std::cout << "  " << name << ": " << as_text(value) << "\n";
  }
}

void report(bool as_json) {
  Json all{{"build", build()},
           {"backends", backends()},
           {"machine", processor()},
           {"devices", {{"GPUs", gpus()}}},
           {"process", process()}};
  // Text comes before the ranks meet, in case they never do.
  if (!as_json) print(all);
  const Json ranks{{"ranks", bindings()}};
  all.update(ranks);
  if (as_json)
    std::cout << all.dump(2) << "\n";
  else
    print(ranks);
}

}  // namespace

int main(int argc, char** argv) try {
  bool as_json = false;
  CLI::App app("Says what this build and this machine have, for bug reports", "lockstep_info");
  app.add_flag("--json", as_json, "One JSON object instead of text");
  examples::parse(app, argc, argv);
  if (ls::comm::launch_rank() == 0)
    report(as_json);
  else
    bindings();
  return 0;
} catch (const examples::Exit& exit) {
  return exit.code;
} catch (const ls::Error& error) {
  std::cerr << "lockstep_info: " << error.what() << std::endl;
  return 2;
}
