// A library that job_program links: a pthread_create that fails on request. A library of its own,
// because in a build with the simulated GPU the program itself has that one's pthread_create, which
// calls this.

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>
#include <pthread.h>

namespace {

int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

}  // namespace

// On the culprit the JOB_BAD_THREADth thread does not start; with JOB_THREAD_KILLS the process dies
// there. A session starts threads while it joins.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  static const int bad = number_from("OMPI_COMM_WORLD_RANK", 0) == number_from("JOB_CULPRIT", 1)
                             ? number_from("JOB_BAD_THREAD", 0)
                             : 0;
  static std::atomic<int> started{0};
  if (++started != bad) return create(thread, attributes, body, argument);
  std::fprintf(stderr, "thread %d does not start\n", bad);
  if (std::getenv("JOB_THREAD_KILLS")) std::raise(SIGKILL);
  return EAGAIN;
}
