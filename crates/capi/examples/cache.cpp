// A cache of strings in C++ that two threads use, within 4 MiB.
//
// c++ -std=c++17 cache.cpp $(pkg-config --cflags --libs rampack) -pthread && ./a.out
#include <cerrno>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include <rampack.h>

namespace {

// Takes a handle back when it goes.
struct Free {
    void operator()(rampack *it) const { rampack_free(it); }
    void operator()(rampack_store *it) const { rampack_store_free(it); }
};

void check(int code)
{
    if (code < 0)
        throw std::runtime_error(rampack_last_error());
}

class Cache {
public:
    explicit Cache(std::uint64_t limit)
    {
        rampack *memory = nullptr;
        check(rampack_new(nullptr, &memory));
        memory_.reset(memory);
        rampack_store_options options{};
        options.struct_size = sizeof options;
        options.limit = limit;
        rampack_store *store = nullptr;
        check(rampack_store_new(memory, &options, &store));
        store_.reset(store);
    }

    void put(std::string_view key, std::string_view value, std::uint32_t ttl = 0)
    {
        check(rampack_store_put(store_.get(), key.data(), key.size(), value.data(), value.size(),
                                ttl));
    }

    std::optional<std::string> get(std::string_view key) const
    {
        std::string value(256, '\0');
        for (;;) {
            std::size_t length = 0;
            int code = rampack_store_get(store_.get(), key.data(), key.size(), value.data(),
                                         value.size(), &length);
            if (code == -ENOENT)
                return std::nullopt;
            if (code != -ERANGE)
                check(code);
            value.resize(length);
            if (code == 0)
                return value;
        }
    }

    rampack_store_stats stats() const
    {
        rampack_store_stats stats{};
        stats.struct_size = sizeof stats;
        check(rampack_store_get_stats(store_.get(), &stats));
        return stats;
    }

private:
    std::unique_ptr<rampack, Free> memory_;
    std::unique_ptr<rampack_store, Free> store_;
};

std::string text(int n)
{
    std::string text;
    while (text.size() < 5000)
        text += "the value of " + std::to_string(n) + ", again and again; ";
    return text;
}

} // namespace

int main()
{
    try {
        Cache cache(4 << 20);
        auto half = [&cache](int first) {
            for (int n = first; n < first + 200; n++) {
                cache.put("key " + std::to_string(n), text(n));
                if (cache.get("key " + std::to_string(n)) != text(n))
                    throw std::runtime_error("a value has changed");
            }
        };
        std::thread other(half, 200);
        half(0);
        other.join();
        cache.put("soon gone", "", 3600);
        std::cout << cache.stats().values << " values; key 300 has "
                  << cache.get("key 300").value().size() << " bytes\n";
        try {
            cache.put(std::string(2000, 'k'), "");
        } catch (const std::runtime_error &error) {
            std::cout << "refused: " << error.what() << '\n';
        }
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
