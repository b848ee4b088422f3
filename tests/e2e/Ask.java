/** Asks once by Java's default client, which offers to upgrade to HTTP/2: java Ask.java URL BODY. */
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

public class Ask {
    public static void main(String[] arguments) throws Exception {
        var question = HttpRequest.newBuilder(URI.create(arguments[0]))
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(arguments[1]))
                .build();
        var answer = HttpClient.newHttpClient().send(question, HttpResponse.BodyHandlers.ofString());
        System.out.print(answer.statusCode() + "\n" + answer.body());
    }
}
