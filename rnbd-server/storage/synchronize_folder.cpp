#include "rnbd-server/storage/synchronize_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "rtrs/base/descriptor.h"
#include "rtrs/base/error.h"

namespace rnbd {

std::error_code synchronize_folder(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    const std::string folder = slash == path.npos ? "." : path.substr(0, slash + 1);
    const rtrs::Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!opened || ::fsync(opened.get()) != 0) return rtrs::from_errno(errno);
    return {};
}

}  // namespace rnbd
