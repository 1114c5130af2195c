import java.io.InputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

/** Reads the class files of its own runtime, and keeps what it made of them: lists, maps, strings.
 *  Grows until it is ended. */
public class Heap {
    record Entry(String name, int round, List<String> names, Map<String, Integer> counts,
                 TreeMap<Integer, Long> places, Double weight) {}

    static final List<Entry> KEPT = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        Path root = FileSystems.getFileSystem(URI.create("jrt:/")).getPath("/modules/java.base/java");
        List<Path> files;
        try (var walk = Files.walk(root)) {
            files = walk.filter(f -> f.toString().endsWith(".class")).sorted().collect(Collectors.toList());
        }
        for (int round = 0; ; round++) {
            for (Path file : files) {
                digest(file, round);
                Thread.sleep(1);
            }
        }
    }

    static void digest(Path file, int round) throws Exception {
        byte[] bytes;
        try (InputStream in = Files.newInputStream(file)) {
            bytes = in.readAllBytes();
        }
        // The names in a class file are what is left when everything unprintable is cut away.
        String text = new String(bytes, StandardCharsets.ISO_8859_1);
        List<String> names = new ArrayList<>();
        Map<String, Integer> counts = new HashMap<>();
        TreeMap<Integer, Long> places = new TreeMap<>();
        int start = 0;
        for (int at = 0; at <= text.length(); at++) {
            char c = at < text.length() ? text.charAt(at) : 0;
            if (c > ' ' && c < 127) continue;
            if (at - start > 3) {
                String name = text.substring(start, at);
                names.add(name);
                counts.merge(name, 1, Integer::sum);
                places.put(start, (long) name.hashCode() << 8 | round);
            }
            start = at + 1;
        }
        KEPT.add(new Entry(file.toString(), round, names, counts, places, bytes.length * 0.5));
    }
}
